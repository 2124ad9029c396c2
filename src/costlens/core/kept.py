"""Which iterations are kept in full, for spans: the first, every n-th and the slowest of a window.

``core/window.py`` offers every iteration on the pipeline thread; everything else about it lives on
in sums only. What is kept changes where somebody asks for more or less while the run is running.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from costlens.core.durations import Sketch
from costlens.core.recorder import Row
from costlens.core.telemetry_records import Detail

__all__ = ["Iteration", "KeepPolicy", "Keeper"]

# A median of fewer iterations says little, and it changes slowly after that.
_MIN_FOR_MEDIAN = 20
_MEDIAN_EVERY = 16
# At two spans or more each, as many as the hourly limit on spans lets go at once.
_MAX_ASKED = 150
# Looked up once: reading a member of an enumeration costs as much as the rest of a comparison.
_OFF, _STEPS = Detail.OFF, Detail.STEPS


@dataclass(frozen=True, slots=True)
class Iteration:
    """One iteration that was kept in full, for a span.

    Args:
        index: Its number in the attempt, from 0.
        start_ns: Monotonic start.
        end_ns: Monotonic end.
        phase_ns: Its own nanoseconds per phase, as the host saw them.
        iteration_ns: The part that counts as its duration (see ``ITERATION_PHASES``).
        reason: ``sampled``, ``slow``, ``first``, or ``asked`` for one that is none of them.
        is_asked: Whether somebody had asked for every iteration.
    """

    index: int
    start_ns: int
    end_ns: int
    phase_ns: tuple[int, ...]
    iteration_ns: int
    reason: str
    is_asked: bool = False


@dataclass(frozen=True, slots=True)
class KeepPolicy:
    """Which iterations are kept in full.

    Args:
        every: Keep every n-th iteration, the same on all ranks, > 0.
        max_sampled: Most of those per window.
        slow_ratio: Keep an iteration longer than this many running medians.
        max_slow: Most of those per window.
    """

    every: int = 100
    max_sampled: int = 1
    slow_ratio: float = 1.5
    max_slow: int = 3


class Keeper:
    """Picks iterations as they come by.

    Args:
        policy: What to pick.
        sketch: Durations of the attempt, for the median; the caller adds to it.

    Attributes:
        detail: What is picked now; ``steps`` picks every iteration, up to 150 between two looks.
        next_detail: What is picked after the next look.
    """

    def __init__(self, policy: KeepPolicy, sketch: Sketch) -> None:
        self._policy = policy
        self._sketch = sketch
        self.detail = self.next_detail = Detail.NORMAL
        self._median_ns = math.inf
        self._num_until_median = 0
        self._num_sampled = 0
        self._kept: list[Iteration] = []
        self._slow: list[Iteration] = []

    def offer(self, row: Row, before_ns: tuple[int, ...], iteration_ns: int) -> None:
        """Keep the iteration if the policy says so.

        Args:
            row: The iteration.
            before_ns: Nanoseconds per phase at the end of the iteration before.
            iteration_ns: Its duration.
        """
        policy, is_asked = self._policy, self.detail is _STEPS
        if self.detail is _OFF:
            return
        if row.number == 0:
            reason = "first"
        elif row.number % policy.every == 0 and self._num_sampled < policy.max_sampled:
            self._num_sampled += 1
            reason = "sampled"
        elif self._is_slow(iteration_ns):
            reason = "slow"
        elif is_asked and len(self._kept) < _MAX_ASKED:
            reason = "asked"
        else:
            return
        own_ns = tuple(now - before for now, before in zip(row.phase_ns, before_ns, strict=True))
        kept = Iteration(
            row.number, row.start_ns, row.end_ns, own_ns, iteration_ns, reason, is_asked
        )
        if reason == "slow":
            self._slow.append(kept)
            self._slow.sort(key=lambda slow: slow.iteration_ns, reverse=True)
            self._kept += self._slow[policy.max_slow :] if is_asked else []
            del self._slow[policy.max_slow :]
        else:
            self._kept.append(kept)

    def take(self) -> tuple[Iteration, ...]:
        """Return what was kept since the last call, in order, and forget it."""
        kept = sorted([*self._kept, *self._slow], key=lambda iteration: iteration.index)
        self._kept.clear()
        self._slow.clear()
        self._num_sampled = 0
        self.detail = self.next_detail
        return tuple(kept)

    def _is_slow(self, iteration_ns: int) -> bool:
        if self._sketch.count <= _MIN_FOR_MEDIAN:
            return False
        if self._num_until_median == 0:
            self._median_ns = self._sketch.quantile_ns(0.5) or math.inf
            self._num_until_median = _MEDIAN_EVERY
        self._num_until_median -= 1
        return iteration_ns > self._policy.slow_ratio * self._median_ns
