"""The phase stack of one rank: exclusive integer nanoseconds that add up to the time gone by.

Only the training thread writes; the pipeline thread reads through :meth:`Timeline.read` without a
lock. A doorway (Lightning, the plain loop) enters and leaves phases; the nesting table of
``core/phases.py`` decides which phase gets the time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from costlens.core.clock import Clock
from costlens.core.phases import EFFECTIVE, NUM_PHASES, Phase

__all__ = ["Bracket", "Timeline", "TimelineReading"]

# (phase asked for, phase that gets the time): a level of the stack, made once for every nesting so
# that entering a phase builds nothing.
_Level = tuple[int, int]
_LEVELS: tuple[tuple[_Level, ...], ...] = tuple(
    tuple((asked, effective) for asked, effective in enumerate(row)) for row in EFFECTIVE
)

_READ_TRIES = 1000
_READ_PAUSE_S = 0.0001


def _pause() -> None:
    time.sleep(_READ_PAUSE_S)


@dataclass(frozen=True, slots=True)
class TimelineReading:
    """A consistent look at a timeline.

    Args:
        phase_ns: Nanoseconds per phase, booked up to ``since_ns``.
        phase: The open phase.
        since_ns: Monotonic time at which the open phase was (re-)entered.
    """

    phase_ns: tuple[int, ...]
    phase: int
    since_ns: int

    def until(self, now_ns: int) -> tuple[int, ...]:
        """Return the nanoseconds per phase with the open phase booked up to ``now_ns``."""
        phase_ns = list(self.phase_ns)
        phase_ns[self.phase] += max(0, now_ns - self.since_ns)
        return tuple(phase_ns)


class Timeline:
    """A stack of phases over one clock.

    Args:
        clock: Returns monotonic nanoseconds.
        start_ns: Where the timeline begins; time up to now is booked to ``base``.
        base: The phase at the bottom of the stack.

    Attributes:
        clock: The clock.
        start_ns: Monotonic time at which the timeline began.
        since_ns: Monotonic time of the last switch; ``sum(phase_ns) == since_ns - start_ns``.
        phase_ns: Nanoseconds per phase up to ``since_ns``.
        phase: The open phase.
        base: The phase at the bottom of the stack.
        levels: The open phases from the bottom up: what was asked for, and what gets the time.
        owner: Identity of the thread that trains.
    """

    __slots__ = (
        "base",
        "clock",
        "levels",
        "owner",
        "phase",
        "phase_ns",
        "since_ns",
        "start_ns",
    )

    def __init__(self, clock: Clock, start_ns: int, base: Phase = Phase.STARTUP) -> None:
        self.clock = clock
        self.start_ns = start_ns
        self.since_ns = start_ns
        self.phase_ns = [0] * NUM_PHASES
        self.phase = int(base)
        self.base = int(base)
        self.levels: list[_Level] = [(int(base), int(base))]
        self.owner = threading.get_ident()

    @property
    def depth(self) -> int:
        """Return how many phases are entered and not left."""
        return len(self.levels) - 1

    # Every method below ends with the same three writes, and their order is the whole concurrency
    # protocol: between the first and the last of them the sum of `phase_ns` differs from
    # `since_ns - start_ns`, so a reader that saw a half-done switch knows it and looks again. No
    # call stands between them, for at calls the interpreter may change threads and let the reader
    # wait; and they stand in each method, because a call would cost a third of the whole.

    def enter(self, phase: int) -> int:
        """Open a phase inside the current one and return the time; training thread, under 1 µs."""
        level = _LEVELS[self.phase][phase]
        self.levels.append(level)
        now_ns = self.clock()
        self.phase_ns[self.phase] += now_ns - self.since_ns
        self.phase = level[1]
        self.since_ns = now_ns
        return now_ns

    def bracket(self, phase: int) -> Bracket:
        """Return a block of a phase, for what is in every iteration."""
        return Bracket(self, phase)

    def leave(self) -> int:
        """Close the phase opened last and return the time; the bottom of the stack stays open."""
        stack = self.levels
        if len(stack) > 1:
            stack.pop()
        effective = stack[-1][1]
        now_ns = self.clock()
        self.phase_ns[self.phase] += now_ns - self.since_ns
        self.phase = effective
        self.since_ns = now_ns
        return now_ns

    def unwind(self, depth: int) -> int:
        """Leave phases until at most ``depth`` are open, as after an error; return the time."""
        stack = self.levels
        keep = depth + 1 if depth > 0 else 1
        while len(stack) > keep:
            stack.pop()
        effective = stack[-1][1]
        now_ns = self.clock()
        self.phase_ns[self.phase] += now_ns - self.since_ns
        self.phase = effective
        self.since_ns = now_ns
        return now_ns

    def drop(self, depth: int) -> None:
        """Leave phases until at most ``depth`` are open, as of the last switch; see ``replace``."""
        stack = self.levels
        keep = depth + 1 if depth > 0 else 1
        while len(stack) > keep:
            stack.pop()
        self.phase = stack[-1][1]

    def rebase(self, phase: Phase) -> int:
        """Change the phase at the bottom of the stack from now on and return the time.

        Phases open above the bottom are nested anew: a phase that start-up had swallowed gets its
        own time once start-up is over. The calling thread is the one that trains from now on.
        """
        self.owner = threading.get_ident()
        outer = self.base = int(phase)
        stack = self.levels
        stack[0] = (outer, outer)
        for depth in range(1, len(stack)):
            stack[depth] = _LEVELS[outer][stack[depth][0]]
            outer = stack[depth][1]
        now_ns = self.clock()
        self.phase_ns[self.phase] += now_ns - self.since_ns
        self.phase = outer
        self.since_ns = now_ns
        return now_ns

    def replace(self, phase: int) -> None:
        """Put another phase in the place of the one opened last, as of the last switch.

        Reads no clock: whoever has just booked (``mark``) ends one phase and opens the next at that
        same moment.
        """
        stack = self.levels
        if len(stack) > 1:
            stack.pop()
        level = _LEVELS[stack[-1][1]][phase]
        stack.append(level)
        self.phase = level[1]

    def mark(self) -> int:
        """Book the open phase up to now, so that ``phase_ns`` is exact at the returned time."""
        now_ns = self.clock()
        self.phase_ns[self.phase] += now_ns - self.since_ns
        self.since_ns = now_ns
        return now_ns

    def read(self, pause: Callable[[], None] = _pause) -> TimelineReading:
        """Return a consistent reading from any thread, without stopping the writer.

        A reading is taken again while the writer is in the middle of a switch, which the sum of the
        phases shows. A writer that stays there for all tries (its thread gets no processor) is read
        as it stands, up to the time its phases add up to.

        Args:
            pause: Called between two tries, so that the writer can finish its switch.
        """
        for _ in range(_READ_TRIES):
            since_ns = self.since_ns
            phase = self.phase
            phase_ns = self.phase_ns.copy()
            booked_ns = self.start_ns + sum(phase_ns)
            if booked_ns == since_ns == self.since_ns:
                break
            pause()
        return TimelineReading(tuple(phase_ns), phase, booked_ns)


class Bracket:
    """A phase for the length of a block, on the training thread; may be entered inside itself.

    What ``enter`` and ``leave`` do, without their calls: several such blocks are in every
    iteration. Whatever a block leaves open is for others to close.

    Args:
        timeline: Takes the time.
        phase: The phase.
    """

    __slots__ = ("_clock", "_levels", "_phase_ns", "_stack", "_timeline")

    def __init__(self, timeline: Timeline, phase: int) -> None:
        self._timeline = timeline
        self._clock = timeline.clock
        self._levels = tuple(row[phase] for row in _LEVELS)
        self._phase_ns = timeline.phase_ns
        self._stack = timeline.levels

    def __enter__(self) -> None:
        timeline = self._timeline
        outer = timeline.phase
        level = self._levels[outer]
        self._stack.append(level)
        now_ns = self._clock()
        self._phase_ns[outer] += now_ns - timeline.since_ns
        timeline.phase = level[1]
        timeline.since_ns = now_ns

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        timeline, stack = self._timeline, self._stack
        if len(stack) > 1:
            stack.pop()
        effective = stack[-1][1]
        now_ns = self._clock()
        self._phase_ns[timeline.phase] += now_ns - timeline.since_ns
        timeline.phase = effective
        timeline.since_ns = now_ns
