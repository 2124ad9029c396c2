"""Delays planted into a random training on a fake clock, and the phase that each belongs to.

Nothing else moves the clock, so the phases of the record must be these delays to the nanosecond.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from costlens.testing import FakeClock

if TYPE_CHECKING:
    from tests.fuzz.witness import Witness

__all__ = ["Planted"]

# Where a delay goes once the first iteration of a fit is over; before, all of it is start-up.
_IN_TRAINING = {
    "data.read": "data_wait",
    "data.transfer_batch_to_device": "transfer",
    "last.on_train_batch_start": "callbacks",
    "last.on_train_epoch_end": "callbacks",
    "last.on_train_end": "callbacks",
    "last.on_train_epoch_start": "callbacks",
    "logger.log_metrics": "logging",
    "module.backward": "backward",
    "module.on_after_backward": "callbacks",
    "module.training_step": "forward",
    "module.transfer_batch_to_device": "transfer",
    "optimizer.step": "optimizer",
}
_IN_EVALUATION = frozenset(
    {
        "data.read",
        "first.on_validation_end",
        "last.on_test_batch_end",
        "logger.log_metrics",
        "module.on_validation_start",
        "module.predict_step",
        "module.test_step",
        "module.transfer_batch_to_device",
        "module.validation_step",
    }
)
_AT_END = frozenset({"first.on_fit_end", "first.teardown"})
_MONITOR_HOOKS = ("on_train_batch_start", "on_train_epoch_start")


class Planted:
    """Lets time pass at some of the calls that a witness notes.

    Args:
        witness: Notes the calls, and knows the Trainer and the tally.
        takes_iterator: Whether the training step fetches for itself, so that the hooks before it
            still belong to the iteration before.

    Attributes:
        clock: The clock of the run.
        expected_ns: Nanoseconds that each phase must have got.
    """

    def __init__(self, witness: Witness, *, takes_iterator: bool) -> None:
        self.clock = FakeClock(10**15)
        self.expected_ns: dict[str, int] = {}
        self._witness = witness
        self._takes_iterator = takes_iterator
        self._num = 0

    def pass_time(self, name: str) -> None:
        """Take some time, never twice the same, if ``name`` is one of the calls."""
        phase = self._phase(name)
        if phase is None:
            return
        self._num += 1
        duration_ns = 1_000_000 + 1009 * self._num
        self.clock.advance_ns(duration_ns)
        self.expected_ns[phase] = self.expected_ns.get(phase, 0) + duration_ns

    def _phase(self, name: str) -> str | None:
        trainer, tally = self._witness.trainer, self._witness.tally
        if trainer is None or not tally.is_open:
            return None
        if name == "first.on_save_checkpoint":
            return "checkpoint"
        if name in _AT_END:
            is_idle = tally.stage == "train" and not tally.has_trained
            return "startup" if is_idle else "shutdown"
        stage = getattr(trainer.state.stage, "value", "sanity_check")
        if stage == "train":
            return self._place_in_training(name)
        if name not in _IN_EVALUATION:
            return None
        return "startup" if stage == "sanity_check" else "validation"

    def _place_in_training(self, name: str) -> str | None:
        phase = _IN_TRAINING.get(name)
        if phase is None:
            return None
        # The first row is cut at the fetch after its batch, so what follows the batch is in it.
        num_in_startup = int(self._takes_iterator and name == "last.on_train_batch_start")
        if name == "logger.log_metrics":
            phase, num_in_startup = self._place_logging(self._witness.trainer)
        tally = self._witness.tally
        is_startup = tally.batches_in_fit <= num_in_startup and not tally.is_past_epoch
        return "startup" if is_startup else phase

    def _place_logging(self, trainer: Any) -> tuple[str, int]:
        """Return the phase of a logger's call, and how many batches it is start-up for."""
        # Only one callback logs by itself. (Lightning leaves the name of a hook that failed there.)
        if trainer.lightning_module._current_fx_name in _MONITOR_HOOKS and any(
            type(each).__name__ == "LearningRateMonitor" for each in trainer.callbacks
        ):
            return "callbacks", int(self._takes_iterator)
        if trainer._logger_connector._first_loop_iter is None:  # the epoch has ended
            return "other", 0
        return "logging", 1
