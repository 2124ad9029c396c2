"""Durations of iterations in bounded memory: a histogram for the exporters, a sketch for quantiles.

``core/window.py`` fills both from the rows; the record, the metrics and the merged report read
them.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, field

from costlens.core.clock import NS_PER_S

__all__ = ["ITERATION_BOUNDS_S", "Histogram", "Sketch"]

ITERATION_BOUNDS_S: tuple[float, ...] = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0,
    120.0, 300.0,
)  # fmt: skip
"""Upper bounds of the histogram, in seconds: OTel's default ones put 0.02, 0.3 and 2 s together."""


@dataclass(slots=True)
class Histogram:
    """Cumulative counts per bucket and one above, with their sum.

    Args:
        buckets: Counts, one more than there are bounds.
        count: All of them.
        sum_ns: Sum of the durations.
        bounds_s: Upper bounds of the buckets, in seconds.
    """

    buckets: list[int] = field(default_factory=lambda: [0] * (len(ITERATION_BOUNDS_S) + 1))
    count: int = 0
    sum_ns: int = 0
    bounds_s: tuple[float, ...] = ITERATION_BOUNDS_S

    def add(self, value_ns: int, count: int = 1) -> None:
        """Count a duration in nanoseconds; one on a bound belongs to the bucket below it.

        Args:
            value_ns: The duration.
            count: How often to count it, >= 0.
        """
        self.buckets[bisect_left(self.bounds_s, value_ns / NS_PER_S)] += count
        self.count += count
        self.sum_ns += value_ns * count

    def copy(self) -> Histogram:
        """Return an independent copy."""
        return Histogram(self.buckets.copy(), self.count, self.sum_ns, self.bounds_s)


@dataclass(slots=True)
class Sketch:
    """Durations in logarithmic bins, so that quantiles of any run take bounded memory.

    The bins are those of DDSketch (Masson, Rim, Lee 2019): a quantile is off by at most 1 %,
    whatever the length of the run.
    """

    bins: dict[int, int] = field(default_factory=dict)
    count: int = 0

    _GAMMA = (1 + 0.01) / (1 - 0.01)
    _LOG_GAMMA = math.log(_GAMMA)

    @classmethod
    def bound_ns(cls, index: int) -> float:
        """Return the upper bound of the bin of that index, in nanoseconds."""
        return cls._GAMMA**index

    def add(self, value_ns: int, count: int = 1) -> None:
        """Count a duration in nanoseconds ``count`` times; below 1 ns counts as 1 ns."""
        index = math.ceil(math.log(max(1, value_ns)) / self._LOG_GAMMA)
        self.bins[index] = self.bins.get(index, 0) + count
        self.count += count

    def quantile_ns(self, q: float) -> float | None:
        """Return the ``q`` quantile (0 to 1) in ns, within 1 %, or None when nothing is counted."""
        if self.count == 0:
            return None
        rank = q * (self.count - 1)
        seen = 0
        for index in sorted(self.bins):
            seen += self.bins[index]
            if seen > rank:
                return float(2 * self._GAMMA**index / (self._GAMMA + 1))
        return None

    def merge(self, other: Sketch) -> None:
        """Add the counts of another sketch."""
        for index, count in other.bins.items():
            self.bins[index] = self.bins.get(index, 0) + count
        self.count += other.count
