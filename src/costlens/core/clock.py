"""The one clock of a process: monotonic nanoseconds, and one anchor that turns them into wall time.

Durations are differences of the monotonic clock only; a wall time is the anchor plus such a
difference (CONTRIBUTING.md, law 2), so a step of the system's clock can neither stretch nor
reverse anything.
Tests put ``testing.FakeClock`` in its place.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["NS_PER_S", "Anchor", "Clock", "anchor_now", "clock_offset_s"]

NS_PER_S = 1_000_000_000

Clock = Callable[[], int]
"""Returns monotonic nanoseconds; goes on while the process is stopped (SIGSTOP)."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """One reading of both clocks, taken together once per process.

    Args:
        wall_ns: Unix time in nanoseconds.
        mono_ns: The monotonic clock at the same moment, in nanoseconds.
    """

    wall_ns: int
    mono_ns: int

    def to_wall_ns(self, mono_ns: int) -> int:
        """Return the Unix time in nanoseconds of a monotonic reading of this process."""
        return self.wall_ns + (mono_ns - self.mono_ns)


def anchor_now(clock: Clock, wall_clock: Clock = time.time_ns) -> Anchor:
    """Return an anchor; of three tries the one whose two readings lay closest together."""
    tries = []
    for _ in range(3):
        before_ns = clock()
        wall_ns = wall_clock()
        after_ns = clock()
        tries.append((after_ns - before_ns, wall_ns, (before_ns + after_ns) // 2))
    _, wall_ns, mono_ns = min(tries)
    return Anchor(wall_ns=wall_ns, mono_ns=mono_ns)


def clock_offset_s(told_s: float, before_s: float, after_s: float) -> float:
    """Return the seconds that another clock is ahead of this one at least, negative if behind.

    0 where both may be right: the other may tell whole seconds only.

    Args:
        told_s: What the other clock said, Unix seconds.
        before_s: This clock before it was asked.
        after_s: This clock once it had answered.
    """
    if told_s + 1 < before_s:
        return told_s + 1 - before_s
    return max(0.0, told_s - after_s)
