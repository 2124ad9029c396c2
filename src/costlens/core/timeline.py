"""The phase stack of one rank: exclusive integer nanoseconds that always add up to the time since its start.

Only the training thread writes; the pipeline thread reads through :meth:`Timeline.read` without a
lock. A doorway (Lightning, the plain loop) enters and leaves phases; the nesting table of
``core/phases.py`` decides which phase gets the time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from costlens.core.clock import Clock
from costlens.core.phases import EFFECTIVE, NUM_PHASES, Phase

__all__ = ["Timeline", "TimelineReading"]

_READ_TRIES = 1000


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
    """

    __slots__ = ("_clock", "_stack", "owner", "phase", "phase_ns", "since_ns", "start_ns")

    def __init__(self, clock: Clock, start_ns: int, base: Phase = Phase.STARTUP) -> None:
        self._clock = clock
        self.start_ns = start_ns
        self.since_ns = start_ns
        self.phase_ns = [0] * NUM_PHASES
        self.phase = int(base)
        self._stack = [int(base)]
        self.owner = threading.get_ident()

    @property
    def depth(self) -> int:
        """Return how many phases are entered and not left."""
        return len(self._stack) - 1

    # The order of the writes in `_switch` is the whole concurrency protocol: between the first and
    # the last of them the sum of `phase_ns` differs from `since_ns - start_ns`, so a reader that
    # saw a half-done switch knows it and looks again.
    def _switch(self, phase: int) -> int:
        now_ns = self._clock()
        self.phase_ns[self.phase] += now_ns - self.since_ns
        self.phase = phase
        self.since_ns = now_ns
        return now_ns

    def enter(self, phase: int) -> int:
        """Open a phase inside the current one and return the time; training thread, under 1 µs."""
        now_ns = self._clock()
        current = self.phase
        self.phase_ns[current] += now_ns - self.since_ns
        effective = EFFECTIVE[current][phase]
        self._stack.append(effective)
        self.phase = effective
        self.since_ns = now_ns
        return now_ns

    def leave(self) -> int:
        """Close the phase opened last and return the time; at the bottom of the stack nothing closes."""
        now_ns = self._clock()
        self.phase_ns[self.phase] += now_ns - self.since_ns
        stack = self._stack
        if len(stack) > 1:
            stack.pop()
        self.phase = stack[-1]
        self.since_ns = now_ns
        return now_ns

    def unwind(self, depth: int) -> int:
        """Leave phases until ``depth`` are open, as after an exception, and return the time."""
        while len(self._stack) - 1 > max(0, depth):
            self._stack.pop()
        return self._switch(self._stack[-1])

    def rebase(self, phase: Phase) -> int:
        """Change the phase at the bottom of the stack from now on and return the time.

        Phases open above the bottom keep the time they got when they were entered.
        """
        self._stack[0] = int(phase)
        return self._switch(self._stack[-1])

    def mark(self) -> int:
        """Book the open phase up to now, so that ``phase_ns`` is exact at the returned time."""
        return self._switch(self.phase)

    def read(self, pause: Callable[[], None] = lambda: time.sleep(0)) -> TimelineReading:
        """Return a consistent reading from any thread, without stopping the writer.

        A reading is taken again while the writer is in the middle of a switch, which the sum of the
        phases shows.

        Args:
            pause: Called between two tries, so that the writer can finish its switch.
        """
        for _ in range(_READ_TRIES):
            since_ns = self.since_ns
            phase = self.phase
            phase_ns = self.phase_ns.copy()
            if since_ns == self.since_ns and sum(phase_ns) == since_ns - self.start_ns:
                break
            pause()
        return TimelineReading(tuple(phase_ns), phase, since_ns)
