"""In which state a Trainer is, and how it ends: read from its states and from what it raises.

``lightning.py`` asks at the hooks that begin and end a run. Lightning is not imported here, so its
classes are known by their names.
"""

from __future__ import annotations

from costlens.core.records import Outcome
from costlens.observe.trainer.given import Trainer

__all__ = ["is_past_teardown", "is_running", "is_stopped_early", "outcome_of", "read_state"]


def read_state(member: object) -> str:
    """Return the word that a member of an enumeration of Lightning's stands for."""
    # They are strings in some versions and not in others.
    return str(getattr(member, "value", member))


def is_running(trainer: Trainer) -> bool:
    """Return whether a fit or an evaluation is under way."""
    return read_state(trainer.state.status) == "running"


def is_stopped_early(trainer: Trainer) -> bool:
    """Return whether training ended because somebody asked it to, before its limits."""
    if not trainer.should_stop:
        return False

    def is_reached(limit: int | None, reached: int) -> bool:
        return limit is not None and 0 <= limit <= reached

    if is_reached(trainer.max_steps, trainer.global_step):
        return False
    if not is_reached(trainer.max_epochs, trainer.current_epoch):
        return True
    # The epoch that was left counts as done, too.
    batches = trainer.fit_loop.epoch_loop.batch_progress
    return not (batches.is_last_batch or batches.current.ready >= trainer.num_training_batches)


def outcome_of(error: BaseException) -> Outcome | None:
    """Return how an attempt ended that an error ended; None where the error's kind decides."""
    # Lightning raises it, a SystemExit without a code, where SIGTERM asked it to stop.
    return Outcome.PREEMPTED if type(error).__name__ == "SIGTERMException" else None


def is_past_teardown(error: BaseException) -> bool:
    """Return whether an error was raised while the callbacks were told of the end, or after."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_name == "_call_teardown_hook":
            return True
        trace = trace.tb_next
    return False
