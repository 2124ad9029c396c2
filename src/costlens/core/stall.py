"""Judges whether the training thread still moves: pure arithmetic over looks at the timeline.

``observe/liveness.py`` looks once a second on the pipeline thread and tells what is found here. Any
switch of phases is a sign of life, whichever phase gets the time.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from costlens.core.clock import NS_PER_S
from costlens.core.phases import ITERATION_PHASES, Phase
from costlens.core.timeline import TimelineReading

__all__ = ["LIMITS", "Stall", "StallLimits", "StallWatch", "Verdict"]

_ITERATION = frozenset(int(phase) for phase in ITERATION_PHASES)
_NUM_KEPT = 64


@dataclass(frozen=True, slots=True)
class StallLimits:
    """How long the training thread may go without a sign of life, in seconds.

    Args:
        floor_s: Never less than this, > 0.
        ratio: Not before so many medians: of an iteration in its phases, of such a time without
            a sign of life in any other phase.
        startup_s: In start-up, where compiling and loading take long and come once.
        unknown_s: In a phase outside of iterations that has not ended once.
        blink_s: Most of the time between two looks that counts: while the whole process stood
            still, nobody could move.
    """

    floor_s: float = 60.0
    ratio: float = 10.0
    startup_s: float = 1800.0
    unknown_s: float = 600.0
    blink_s: float = 5.0


LIMITS = StallLimits()
"""What runs are judged by; tests put shorter ones in their place."""


@dataclass(frozen=True, slots=True)
class Stall:
    """A training thread that has not moved for too long.

    Args:
        phase: The open phase.
        since_ns: Monotonic time of the last sign of life, or of the first look.
        age_ns: From then to the newest look that saw none.
        limit_ns: From what age on it is a stall.
    """

    phase: int
    since_ns: int
    age_ns: int
    limit_ns: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """Something to tell: a stall that begins or goes on, or one that is over."""

    stall: Stall
    is_over: bool


class StallWatch:
    """Compares how long nothing has moved with how long that usually takes.

    Args:
        now_ns: Monotonic time at which watching begins.
        limits: When it is too long.

    Attributes:
        stall: The stall as of the last look, None while there is none.
    """

    def __init__(self, now_ns: int, limits: StallLimits | None = None) -> None:
        self._limits = limits or StallLimits()
        self._began_ns = now_ns
        self._looked_ns = now_ns
        self._seen: tuple[int, int] | None = None
        self._quiet_ns = 0
        self._tell_at_ns = 0
        self._durations: dict[int, deque[int]] = {}
        self.stall: Stall | None = None

    def judge(
        self, reading: TimelineReading, now_ns: int, median_iteration_ns: Callable[[], float | None]
    ) -> Verdict | None:
        """Return what to tell, if anything; a stall that goes on is told again at twice its length.

        Args:
            reading: The timeline as it stands.
            now_ns: Monotonic time of the look.
            median_iteration_ns: Returns the median duration of an iteration; asked only in doubt.
        """
        blink_ns = int(self._limits.blink_s * NS_PER_S)
        seen = (reading.phase, reading.since_ns)
        looked_ns, self._looked_ns = self._looked_ns, now_ns
        if seen == self._seen:
            self._quiet_ns += min(max(0, now_ns - looked_ns), blink_ns)
        else:
            self._remember()
            self._seen = seen
            self._quiet_ns = min(max(0, now_ns - max(looked_ns, reading.since_ns)), blink_ns)
            over, self.stall = self.stall, None
            if over is not None:
                return Verdict(over, is_over=True)
        if self.stall is None and self._quiet_ns >= self._limits.floor_s * NS_PER_S:
            limit_ns = self._limit_ns(reading.phase, median_iteration_ns)
            if self._quiet_ns >= limit_ns:
                since_ns = max(self._began_ns, reading.since_ns)
                self.stall = Stall(reading.phase, since_ns, 0, limit_ns)
                self._tell_at_ns = 0
        return self._follow(now_ns)

    def _follow(self, now_ns: int) -> Verdict | None:
        if self.stall is None:
            return None
        self.stall = replace(self.stall, age_ns=now_ns - self.stall.since_ns)
        if self._quiet_ns < self._tell_at_ns:
            return None
        self._tell_at_ns = 2 * self._quiet_ns
        return Verdict(self.stall, is_over=False)

    def _remember(self) -> None:
        if self._seen is not None and self._seen[0] not in _ITERATION:
            kept = self._durations.setdefault(self._seen[0], deque(maxlen=_NUM_KEPT))
            kept.append(self._quiet_ns)

    def _limit_ns(self, phase: int, median_iteration_ns: Callable[[], float | None]) -> int:
        limits, known = self._limits, self._durations.get(phase)
        if phase == Phase.STARTUP:
            return int(max(limits.floor_s, limits.startup_s) * NS_PER_S)
        if phase in _ITERATION:
            usual_ns = median_iteration_ns() or 0.0
        elif known:
            usual_ns = statistics.median(known)
        else:
            return int(max(limits.floor_s, limits.unknown_s) * NS_PER_S)
        return int(max(limits.floor_s * NS_PER_S, limits.ratio * usual_ns))
