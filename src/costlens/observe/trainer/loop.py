"""The state of a training loop between two brackets.

``scopes.py`` calls it as brackets open and close; it moves the timeline and cuts the recorder's
rows. One iteration is one batch, cut at the next fetch, so what callbacks and loggers do after a
batch belongs to it.
"""

from __future__ import annotations

from collections.abc import Callable

from costlens.core.attempt_state import AttemptState
from costlens.core.phases import Phase
from costlens.core.recorder import Recorder
from costlens.core.timeline import Timeline
from costlens.observe.device_events import DeviceGaps
from costlens.observe.trainer.brackets import BracketProfiler

__all__ = ["LoopTimes"]

_STARTUP = int(Phase.STARTUP)
_DATA_WAIT = int(Phase.DATA_WAIT)


class LoopTimes:
    """Where the training loop stands; only the training thread calls it.

    Args:
        timeline: The run's timeline.
        recorder: Takes a row per iteration.
        state: Gets the marks of start-up.

    Attributes:
        has_gap: Whether what follows a batch is under way.
        is_complete: Whether a batch has ended whose row is not cut yet.
        is_evaluating: Whether an evaluation loop runs (the sanity check is none).
        is_starting: Whether the set-up of this fit lasts: no batch has been fetched.
        is_new_evaluation: Whether the iterators of an evaluation have not been told yet.
        on_iterators: Called once an epoch or evaluation, when its iterators have been made.
        is_tuning: Tells whether what runs now is a tuner's trial and not the fit itself.
        note_save: Called when a save is complete.
        num_backward: Backward passes under way.
        num_micro: Training steps that returned in the batch under way.
        num_begun: Batches and updates that were begun: what was under way before is abandoned.
        profiler: Tells when the next bracket opens.
        gaps: Measures how long a device waits, where there is one.
    """

    __slots__ = (
        "_has_wait",
        "counters",
        "gaps",
        "has_gap",
        "is_complete",
        "is_evaluating",
        "is_new_evaluation",
        "is_starting",
        "is_tuning",
        "note_save",
        "num_backward",
        "num_begun",
        "num_micro",
        "on_iterators",
        "profiler",
        "recorder",
        "state",
        "timeline",
    )

    def __init__(self, timeline: Timeline, recorder: Recorder, state: AttemptState) -> None:
        self.timeline = timeline
        self.recorder = recorder
        self.counters = recorder.counters
        self.state = state
        self.profiler: BracketProfiler | None = None
        self.gaps: DeviceGaps | None = None
        self.is_complete = False
        self.is_evaluating = False
        self.is_starting = True
        self.is_tuning: Callable[[], bool] = bool
        self.is_new_evaluation = False
        self.on_iterators: Callable[[], object] = bool
        self.note_save: Callable[[], None] = _note_nothing
        self.has_gap = False
        self._has_wait = False
        self.num_backward = 0
        self.num_micro = 0
        self.num_begun = 0

    # A batch from fetch to fetch.

    def end_iteration(self) -> None:
        """Cut the row of a batch that is complete, the gap after it included; about 1 µs."""
        if self.has_gap:
            self.has_gap = False
            self.timeline.leave()
        if self.is_complete:
            self.is_complete = False
            self.recorder.cut()

    def count_validation_batch(self) -> None:
        """Count a batch of validation; the sanity check's are none."""
        if self.is_evaluating:
            self.counters.validation_batches += 1
        if self.is_new_evaluation:
            self._tell_iterators()

    def count_test_batch(self) -> None:
        """Count a batch of a test."""
        self.counters.test_batches += 1
        if self.is_new_evaluation:
            self._tell_iterators()

    def _tell_iterators(self) -> None:
        self.is_new_evaluation = False
        self.on_iterators()

    # Set-up and end of a fit.

    def begin_setup(self) -> None:
        """Begin the set-up of a fit or an evaluation: start-up, in a run that goes on as well."""
        self.is_starting = True
        self.is_complete = False
        self.num_micro = 0
        if self.timeline.base != _STARTUP:
            self.timeline.rebase(Phase.STARTUP)

    def end_setup(self) -> None:
        """End the set-up of a fit with its first fetch."""
        # The first iteration is start-up as well: its cut ends that.
        self.is_starting = False
        self.recorder.start_ns = self.timeline.mark()
        if self.counters.iterations == 0:
            self.state.first_fetch_ns = self.recorder.start_ns

    def shut_down(self) -> None:
        """Begin the time after the last hook of the training or the evaluation."""
        if not self.is_tuning():
            self.timeline.rebase(Phase.SHUTDOWN)

    def settle(self, depth: int) -> None:
        """Leave everything down to ``depth`` and cut a batch that is complete."""
        self._close_wait()
        self.repair(depth)
        self.end_iteration()

    def repair(self, depth: int) -> None:
        """Leave what an exception left open above ``depth``."""
        if self.timeline.depth > depth:
            self.timeline.unwind(depth)
            self.num_backward = 0
            self.has_gap = False

    # Iterators are created, and workers started, before the first bracket of an epoch.

    def open_wait(self) -> None:
        """Book what comes to waiting for data, until the next bracket of any kind.

        Only outside all brackets: their ends would not be noticed.
        """
        if self.timeline.depth == 0 and self.profiler is not None and not self._has_wait:
            self._has_wait = True
            self.timeline.enter(_DATA_WAIT)
            if self.gaps is not None:
                self.gaps.begin_wait()
            self.profiler.at_next_bracket(self._close_wait)

    def _close_wait(self) -> None:
        if self._has_wait:
            self._has_wait = False
            if self.profiler is not None:
                self.profiler.at_next_bracket(None)
            if self.gaps is not None:
                self.gaps.end_wait(self.counters.iterations)
            self.timeline.leave()
            self.on_iterators()


def _note_nothing() -> None:
    pass
