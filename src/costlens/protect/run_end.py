"""How one run ends when nobody calls ``finish``: by a signal, by ``sys.exit`` or by an error.

``assembly.py`` makes one for each run; ``signals.py`` calls it from signal handlers, run.py asks it
when the interpreter ends.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from threading import get_ident

from costlens.core import exits
from costlens.core.attempt_state import AttemptState
from costlens.core.guard import faults
from costlens.core.phases import Phase
from costlens.core.pipeline import Pipeline
from costlens.core.recorder import Recorder
from costlens.core.records import Outcome
from costlens.protect import signals
from costlens.protect.preemption import Preemption

__all__ = ["RunEnd"]


class RunEnd:
    """Knows what asks a run to end, and ends it from inside a signal handler.

    Args:
        recorder: The run's; its timeline is closed.
        state: Gets the outcome.
        names: The signals that announce the end, such as ``SIGTERM``.
        end_timeout_s: Most seconds that a dying process waits for the record and the flush.
        is_interactive: Whether a person types into the process, whose errors end nothing.

    Attributes:
        pipeline: What is to be stopped; None while the run is closed.
        preemption: Saves before the end; None while no checkpoints are kept.
    """

    def __init__(
        self,
        recorder: Recorder,
        state: AttemptState,
        names: Sequence[str],
        *,
        end_timeout_s: float,
        is_interactive: bool,
    ) -> None:
        self.pipeline: Pipeline | None = None
        self.preemption: Preemption | None = None
        self._end_timeout_s = end_timeout_s
        self._recorder = recorder
        self._state = state
        self._names = names
        self._is_interactive = is_interactive
        self._exit: tuple[object, int] | None = None
        self._last_error_id = 0

    def arm(self) -> None:
        """Listen to what ends processes; calling thread, about 0.2 ms."""
        self._exit = None
        self._last_error_id = _last_error_id()
        exits.listen(self._note_exit)
        faults.call("protect.attach", signals.attach, self, self._names)

    def disarm(self) -> None:
        """Listen no longer."""
        faults.call("protect.detach", signals.detach, self)
        exits.hush(self._note_exit)
        if self.preemption is not None:
            self.preemption.close()

    def pass_on(self, error: BaseException | None) -> None:
        """Let a signal kill the process that came when there was nothing left to train.

        Args:
            error: What ended the run, if anything; that ends the process, too.
        """
        preemption, self.preemption = self.preemption, None
        name = self._state.signal
        if preemption is not None and name is not None and preemption.is_owed(error):
            faults.call("protect.deliver", signals.deliver, name)

    def settle(
        self, outcome: Outcome | str | None, error: BaseException | None, exit_code: int | None
    ) -> None:
        """Write into the state how the attempt ended.

        Args:
            outcome: What the caller says; by default it follows from the rest.
            error: What ended it, if anything.
            exit_code: The exit code of the process, where it is known.
        """
        state = self._state
        if exit_code is None and isinstance(error, SystemExit):
            exit_code = exits.exit_code_of(error)
        state.outcome = self._outcome(error) if outcome is None else Outcome(outcome)
        if state.outcome is not Outcome.STOPPED_EARLY:
            state.end_reason = None  # it reached its end, or another one
        is_error = error is not None and state.outcome is not Outcome.COMPLETED
        if state.preemption is not None and isinstance(error, SystemExit):
            is_error = False  # that is how it leaves
        state.error_type = type(error).__name__ if is_error else None
        state.exit_code = exit_code

    def take_cause(self) -> BaseException | None:
        """Return what ends the interpreter, an unhandled error or ``sys.exit``; None if neither."""
        error = getattr(sys, "last_value", None)
        if error is not None and id(error) != self._last_error_id and not self._is_interactive:
            if isinstance(error, KeyboardInterrupt):
                self._state.signal = self._state.signal or "SIGINT"
            return error if isinstance(error, BaseException) else None
        # A loop that went on after `sys.exit` has caught it.
        if self._exit is not None and self._exit[1] == self._recorder.counters.iterations:
            return SystemExit(self._exit[0])
        return None

    @property
    def end_timeout_s(self) -> float:
        """Return the most seconds that a dying process waits for the record and the flush."""
        if self.preemption is None:
            return self._end_timeout_s
        return self.preemption.end_timeout_s

    # Inside signal handlers: no lock, no stream.

    @property
    def is_ended(self) -> bool:
        """Return whether the record is written and everything flushed."""
        return self.pipeline is None or self.pipeline.is_done

    def note_signal(self, name: str) -> None:
        """Remember that a signal has asked for the end."""
        self._state.signal = name
        if self.preemption is not None:
            self.preemption.handle(name)

    def hear_signal(self, name: str) -> None:
        """Learn of a signal before its handler has run; the thread that listens."""
        if self.preemption is not None:
            self._state.signal = name
            self.preemption.hear(name)

    @property
    def is_saving(self) -> bool:
        """Return whether the training knows of the signal, saves, and ends the process itself."""
        return self.preemption is not None and self.preemption.is_saving

    def begin_end(self) -> None:
        """Close the timeline and ask for the last window; the process is about to die."""
        if self._state.outcome is Outcome.RUNNING:
            timeline = self._recorder.timeline
            if timeline.owner == get_ident():
                timeline.unwind(0)
                timeline.rebase(Phase.SHUTDOWN)
            self._state.outcome = Outcome.PREEMPTED
            if self.preemption is not None:
                self.preemption.describe("given_up")
        if self.pipeline is not None:
            self.pipeline.ask_to_stop()

    def _note_exit(self, status: object) -> None:
        self._exit = (status, self._recorder.counters.iterations)

    def _outcome(self, error: BaseException | None) -> Outcome:
        state = self._state
        if state.preemption is not None or state.signal in self._names:
            return Outcome.PREEMPTED
        if error is None or (isinstance(error, SystemExit) and not exits.exit_code_of(error)):
            return Outcome.COMPLETED if state.end_reason is None else Outcome.STOPPED_EARLY
        is_asked = isinstance(error, KeyboardInterrupt)
        return Outcome.INTERRUPTED if is_asked else Outcome.FAILED


def _last_error_id() -> int:
    return id(getattr(sys, "last_value", None))
