"""Sums of counters that the system keeps and may start again, and how fast they rise.

What a counter had counted before the first look does not matter. One that is lower than before has
begun again, for a wrap, a reset and a new device of the same name all look alike: then it has
counted at least what it shows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from costlens.core.clock import NS_PER_S

__all__ = ["RecentRate", "RisingSum"]

_NUM_SAMPLES = 6  # 2 s apart: 10 s


class RisingSum:
    """The sum of what several counters have gone up since each was seen first."""

    __slots__ = ("_last", "total")

    def __init__(self) -> None:
        self._last: dict[str, int | float] = {}
        self.total: int | float | None = None

    def add(self, counters: Mapping[str, int | float]) -> int | float | None:
        """Take what the counters show now and return the sum; None while none has been seen.

        A counter that has gone keeps its share; should it come back, it goes on from there.

        Args:
            counters: Values by name, each >= 0.
        """
        for name, value in counters.items():
            before = self._last.get(name)
            self._last[name] = value
            risen = 0 if before is None else value - before if value >= before else value
            self.total = (self.total or 0) + risen
        return self.total


class RecentRate:
    """How fast a sum has risen over the last samples, per second."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: deque[tuple[int, float]] = deque(maxlen=_NUM_SAMPLES)

    def add(self, now_ns: int, total: float | None) -> float | None:
        """Take a sample and return the rate; None while there is no time between two samples.

        Args:
            now_ns: Monotonic time of the sample.
            total: The sum as it stands, or None where it is not known.
        """
        if total is None:
            self._samples.clear()
            return None
        if self._samples and now_ns <= self._samples[-1][0]:
            return self._rate()
        self._samples.append((now_ns, total))
        return self._rate()

    def _rate(self) -> float | None:
        (begin_ns, first), (end_ns, last) = self._samples[0], self._samples[-1]
        if end_ns <= begin_ns:
            return None
        return max(0.0, last - first) * NS_PER_S / (end_ns - begin_ns)
