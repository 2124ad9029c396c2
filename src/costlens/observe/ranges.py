"""Phases and iterations as ranges of another profiler: Nsight's, or torch's own.

Opt-in (``COSTLENS_RANGES``): a timeline and a recorder that do what theirs do and open and close a
range with it. Without it neither is made, so a run that did not ask pays nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from types import TracebackType
from typing import Protocol

from costlens.core.clock import Clock
from costlens.core.guard import faults
from costlens.core.phases import NAMES, Phase
from costlens.core.recorder import Recorder
from costlens.core.timeline import Bracket, Timeline

__all__ = ["ITERATION", "RangedRecorder", "RangedTimeline", "Ranges"]

ITERATION = "costlens.iteration"
_RANGE_NAMES = tuple(f"costlens.{name}" for name in NAMES)
_WORK = frozenset(
    {
        Phase.DATA_WAIT,
        Phase.TRANSFER,
        Phase.FORWARD,
        Phase.BACKWARD,
        Phase.OPTIMIZER,
        Phase.COMPUTE,
    }
)
_LOOP_BASES = frozenset({Phase.OTHER, Phase.COMPUTE, Phase.VALIDATION})


class Ranges(Protocol):
    """Opens named ranges in another profiler; any thread, no device is waited for."""

    def open(self, name: str, *, is_elsewhere: bool) -> Callable[[], object] | None:
        """Return what closes the range again, or None where there is none.

        Args:
            name: Its name.
            is_elsewhere: Whether this is not the thread that trains, as inside a backward pass on a
                device; another thread may close it then.
        """


class RangedTimeline(Timeline):
    """A timeline whose open phases are ranges, named after the phase that gets the time.

    A range opens after its phase and closes before it, so what that takes is in the phase. The
    range of an iteration lies around them; it opens with the first fetch or pass that may belong to
    one, so a pass that is begun and comes to nothing is a range, too. The phase at the bottom of
    the stack has none.

    Args:
        clock: Returns monotonic nanoseconds.
        start_ns: Where the timeline begins.
        ranges: Where they go.
    """

    __slots__ = ("_closers", "_is_armed", "_iteration", "_opened_ns", "_ranges")

    def __init__(self, clock: Clock, start_ns: int, ranges: Ranges) -> None:
        super().__init__(clock, start_ns)
        self._ranges = ranges
        # What closes the range of each level above the bottom.
        self._closers: list[Callable[[], object] | None] = []
        self._iteration: list[Callable[[], object] | None] = []
        self._opened_ns = start_ns
        self._is_armed = False

    def enter(self, phase: int) -> int:
        """Open a phase inside the current one, and its range."""
        now_ns = super().enter(phase)
        is_work = self.phase in _WORK or (self.phase == Phase.STARTUP and self._is_armed)
        if is_work and phase in _WORK and not self._iteration:
            self._open_iteration(now_ns, self.levels[1:-1])
        self._reopen(self.levels[-1:], self.levels[-2][1] if len(self.levels) > 2 else None)
        return now_ns

    def bracket(self, phase: int) -> Bracket:
        """Return a block of a phase that opens and closes its range, too."""
        return _RangedBracket(self, phase)

    def leave(self) -> int:
        """Close the phase opened last, and its range."""
        self._close_to(len(self.levels) - 2)
        return super().leave()

    def unwind(self, depth: int) -> int:
        """Leave phases and their ranges until at most ``depth`` are open."""
        self._close_to(depth)
        return super().unwind(depth)

    def rebase(self, phase: Phase) -> int:
        """Change the phase at the bottom; ranges whose phase is another one by that change, too."""
        before = self.levels[1:]
        now_ns = super().rebase(phase)
        if phase not in _LOOP_BASES:
            self.close_iteration()
        if self.levels[1:] != before:
            self._close_to(0)
            self._reopen(self.levels[1:])
        return now_ns

    def begin_iteration(self, now_ns: int) -> None:
        """Let the range of the iteration begin now, where it has begun before ``now_ns``."""
        # In start-up, fetches and passes of a sanity check come before those of the training.
        self._is_armed = now_ns != self.start_ns
        is_begun = bool(self._iteration) or (self.base == Phase.STARTUP and self.depth > 0)
        if is_begun and now_ns != self._opened_ns:
            self._open_iteration(now_ns, self.levels[1:])

    def close_iteration(self) -> None:
        """Close the range of the iteration, if it is open; the phases' go on outside of it."""
        if self._iteration:
            self._close_around()
            self._reopen(self.levels[1:])

    def _open_iteration(self, now_ns: int, levels: list[tuple[int, int]]) -> None:
        self._opened_ns = now_ns
        self._close_around()
        self._iteration = [self._open(ITERATION)]
        self._reopen(levels)

    def _reopen(self, levels: list[tuple[int, int]], outer: int | None = None) -> None:
        for _, phase in levels:
            # What the phase around it keeps the time of is a part of that one's range.
            self._closers.append(None if phase == outer else self._open(_RANGE_NAMES[phase]))
            outer = phase

    def _open(self, name: str) -> Callable[[], object] | None:
        is_elsewhere = self.owner != get_ident()
        return faults.call("observe.ranges", self._ranges.open, name, is_elsewhere=is_elsewhere)

    def _close_around(self) -> None:
        self._close_to(0)
        taken, self._iteration = self._iteration, []
        _close(taken)

    # A signal's handler may unwind the timeline anywhere in here: nothing is taken from a list that
    # it may have emptied meanwhile.
    def _close_to(self, depth: int) -> None:
        above = slice(max(0, depth), None)
        taken = self._closers[above]
        del self._closers[above]
        _close(taken)


class _RangedBracket(Bracket):
    __slots__ = ("_phase",)

    def __init__(self, timeline: RangedTimeline, phase: int) -> None:
        super().__init__(timeline, phase)
        self._phase = phase

    def __enter__(self) -> None:
        self._timeline.enter(self._phase)

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        self._timeline.leave()


def _close(closers: list[Callable[[], object] | None]) -> None:
    for close in reversed(closers):
        if close is not None:
            faults.call("observe.ranges", close)


class RangedRecorder(Recorder):
    """A recorder that tells its timeline where iterations begin and end."""

    timeline: RangedTimeline

    def __init__(self, timeline: RangedTimeline) -> None:
        self._start_ns = timeline.start_ns
        super().__init__(timeline)

    @property
    def start_ns(self) -> int:
        """Monotonic start of the iteration under way."""
        return self._start_ns

    @start_ns.setter
    def start_ns(self, value: int) -> None:
        self._start_ns = value
        self.timeline.begin_iteration(value)

    def cut(self) -> int:
        """End the iteration and its range, append its row and return the time."""
        self.timeline.close_iteration()
        return super().cut()

    # The ranges of the phases that end with an iteration close inside of its own.

    def cut_to(self, depth: int) -> None:
        """Leave phases and their ranges, then end the iteration and its own."""
        self.timeline.unwind(depth)
        self.cut()

    def cut_into(self, phase: int) -> None:
        """Leave the phase opened last, end the iteration, and open another phase."""
        self.timeline.leave()
        self.cut()
        self.timeline.enter(phase)
