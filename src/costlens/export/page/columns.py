"""Windows folded into columns: a bounded number of them, however long the run was. Pure.

A column holds the windows of some stretch of time, exactly: times and counts are sums, measured
values keep their mean, least and most. Nothing is left out, only the resolution falls.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from costlens.core.phases import NAMES
from costlens.core.training_records import WindowPart
from costlens.export.figures import show_text

__all__ = ["MAX_COLUMNS", "MAX_VALUES", "Column", "Fold", "Spread"]

MAX_COLUMNS = 600
"""About one a pixel where the page is widest on a phone, and half a one on a desk."""

MAX_VALUES = 24
"""Most quality metrics that a column follows."""

_KNOWN = frozenset(NAMES)
_REST = "other"


@dataclass(slots=True)
class Spread:
    """A measured value over a stretch of time.

    Attributes:
        total: Sum of the values, each times its weight.
        weight: Sum of the weights.
        least: The least value.
        most: The greatest value.
        last: The newest value.
    """

    total: float = 0.0
    weight: float = 0.0
    least: float = math.inf
    most: float = -math.inf
    last: float = math.nan

    @property
    def mean(self) -> float | None:
        """Return the weighted mean, None where nothing was measured."""
        return self.total / self.weight if self.weight > 0 else None

    def add(self, value: float, weight: float = 1.0, most: float | None = None) -> None:
        """Take one value.

        Args:
            value: The mean over the weight.
            weight: Seconds or iterations it stands for, > 0.
            most: The greatest single value behind the mean, where that is known.
        """
        self.total += value * weight
        self.weight += weight
        self.least = min(self.least, value)
        self.most = max(self.most, value if most is None else most)
        self.last = value

    def merge(self, later: Spread) -> None:
        """Take all that a later one has."""
        if later.weight <= 0:
            return
        self.total += later.total
        self.weight += later.weight
        self.least = min(self.least, later.least)
        self.most = max(self.most, later.most)
        self.last = later.last


@dataclass(slots=True)
class Column:
    """Some windows of one attempt, or of several where there are very many.

    Args:
        start_s: Unix time at which the first window began.
        end_s: Unix time at which the last window ended.
        attempts: The attempts in it, in order.

    Attributes:
        num_windows: Windows in it, over all ranks that were read.
        phase_ns: Nanoseconds per phase.
        counts: What was counted.
        iteration: Seconds of an iteration, weighted by iterations.
        use: By the fields of ``UsePart``, weighted by seconds.
        quality: By metric.
    """

    start_s: float
    end_s: float
    attempts: list[int]
    num_windows: int = 0
    phase_ns: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    iteration: Spread = field(default_factory=Spread)
    use: dict[str, Spread] = field(default_factory=dict)
    quality: dict[str, Spread] = field(default_factory=dict)

    def add(self, window: WindowPart) -> None:
        """Take a window; a phase that this costlens does not know counts as ``other``."""
        self.num_windows += 1
        for name, ns in window.phase_ns.items():
            self.phase_ns[name if name in _KNOWN else _REST] += ns
        for name, count in window.counts.items():
            self.counts[name] += count
        if window.num_iterations > 0 and window.iteration_mean_s is not None:
            self.iteration.add(
                window.iteration_mean_s, float(window.num_iterations), window.iteration_max_s
            )
        if window.use is not None:
            seconds = window.end_time - window.start_time
            for name, value in window.use:
                if value is not None and seconds > 0:
                    self.use.setdefault(name, Spread()).add(value, seconds)
        for name, value in window.quality.items():
            if math.isfinite(value):
                self._add_quality(name, value)

    def _add_quality(self, metric: str, value: float) -> None:
        name = show_text(metric)  # as in the record that the page shows
        if name in self.quality or len(self.quality) < MAX_VALUES:
            self.quality.setdefault(name, Spread()).add(value)

    def merge(self, later: Column) -> None:
        """Take all that a later column has."""
        self.end_s = max(self.end_s, later.end_s)
        self.attempts += [n for n in later.attempts if n not in self.attempts]
        self.num_windows += later.num_windows
        self.phase_ns.update(later.phase_ns)
        self.counts.update(later.counts)
        self.iteration.merge(later.iteration)
        _merge_spreads(self.use, later.use)
        _merge_spreads(self.quality, later.quality)


def _merge_spreads(into: dict[str, Spread], later: Mapping[str, Spread]) -> None:
    for name, spread in later.items():
        if name in into:
            into[name].merge(spread)
        elif len(into) < MAX_VALUES:
            into[name] = spread


class Fold:
    """Takes windows in the order of time and keeps at most so many columns.

    Each time there are too many, neighbours become one: the work is linear in the windows, and the
    memory does not depend on their number.

    Args:
        max_columns: Most columns, >= 2.
    """

    def __init__(self, max_columns: int = MAX_COLUMNS) -> None:
        self.columns: list[Column] = []
        self._max_columns = max_columns
        self._size = 1
        self._lengths: list[int] = []  # windows of the first rank in each column
        self._places: dict[int, tuple[int, int]] | None = None

    def append(self, attempt: int, window: WindowPart) -> None:
        """Take the next window of the rank that sets the columns; attempts come in order."""
        self._places = None
        last = self.columns[-1] if self.columns else None
        if last is not None and last.attempts[-1] == attempt and self._lengths[-1] < self._size:
            last.add(window)
            last.end_s = max(last.end_s, window.end_time)
            self._lengths[-1] += 1
        else:
            column = Column(window.start_time, window.end_time, [attempt])
            column.add(window)
            self.columns.append(column)
            self._lengths.append(1)
        if len(self.columns) > self._max_columns:
            self._shrink()

    def beside(self, attempt: int, window: WindowPart) -> None:
        """Take a window of another rank: it counts where the middle of it falls.

        Args:
            attempt: An attempt of which windows were appended; others are left out.
            window: The window.
        """
        place = self._find_places().get(attempt)
        if place is None:
            return
        middle_s = (window.start_time + window.end_time) / 2
        low, high = place
        index = bisect_right(self.columns, middle_s, low, high, key=_start) - 1
        self.columns[max(low, index)].add(window)

    def _find_places(self) -> dict[int, tuple[int, int]]:
        if self._places is None:
            self._places = {}
            for index, column in enumerate(self.columns):
                for attempt in column.attempts:
                    low = self._places.get(attempt, (index, index))[0]
                    self._places[attempt] = (low, index + 1)
        return self._places

    def _shrink(self) -> None:
        self._size *= 2
        self._pair(is_across=False)
        # A job that has restarted hundreds of times has more attempts than there are columns.
        while len(self.columns) > self._max_columns:
            self._pair(is_across=True)

    def _pair(self, *, is_across: bool) -> None:
        columns: list[Column] = []
        lengths: list[int] = []
        is_open = False
        for column, length in zip(self.columns, self._lengths, strict=True):
            fits = is_open and (is_across or columns[-1].attempts == column.attempts)
            if fits:
                columns[-1].merge(column)
                lengths[-1] += length
            else:
                columns.append(column)
                lengths.append(length)
            is_open = not fits
        self.columns, self._lengths = columns, lengths


def _start(column: Column) -> float:
    return column.start_s
