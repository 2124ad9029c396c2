"""Quality of the model as the run goes: loss, gradient norm, learning rate, validation metrics.

Doorways append numbers that are on the host already, ``observe/device_values`` appends those it
read after a device event; the pipeline thread folds them into bounded summaries that spans, metrics
and the record share.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace
from typing import NamedTuple

__all__ = ["MAX_NAMES", "Observation", "Quality", "QualityBook", "Summary", "improves_upwards"]

MAX_NAMES = 16
"""Most quality names of a run; values of further ones are dropped and counted."""

_CAPACITY = 8192
_DOWNWARDS = ("loss", "error", "mape", "brier", "fid")
_UPWARDS = ("acc", "auc", "f1", "bleu", "rouge", "recall", "precision", "map", "iou", "r2", "score")


def improves_upwards(name: str) -> bool:
    """Return whether a higher value of a metric of this name is better; the unknown is a loss."""
    lowered = name.lower()
    if any(word in lowered for word in _DOWNWARDS):
        return False
    return any(word in lowered for word in _UPWARDS)


class Observation(NamedTuple):
    """One value of one quality metric.

    Args:
        name: The metric.
        value: The value; NaN and infinities are counted, never summed.
        iteration: Iteration of the attempt it belongs to, from 0.
        mono_ns: Monotonic time at which it was known on the training thread.
    """

    name: str
    value: float
    iteration: int
    mono_ns: int


@dataclass(slots=True)
class Summary:
    """What is kept of one quality metric, whatever the length of the run.

    Args:
        last: Newest finite value, None before the first.
        last_iteration: Its iteration.
        best: Best finite value in the metric's own direction.
        best_iteration: Its iteration.
        best_ns: Monotonic time of the best value, for the cost to reach it.
        higher_is_better: The metric's direction.
        num_values: Finite values.
        num_nonfinite: NaN and infinite values.
        first_nonfinite_iteration: Iteration of the first of them.
        total: Sum of the finite values.
    """

    last: float | None = None
    last_iteration: int | None = None
    best: float | None = None
    best_iteration: int | None = None
    best_ns: int | None = None
    higher_is_better: bool = False
    num_values: int = 0
    num_nonfinite: int = 0
    first_nonfinite_iteration: int | None = None
    total: float = 0.0

    def add(self, seen: Observation) -> None:
        """Take in one more observation; about 0.5 µs on the pipeline thread."""
        value = seen.value
        if not math.isfinite(value):
            self.num_nonfinite += 1
            first = self.first_nonfinite_iteration
            if first is None or seen.iteration < first:
                self.first_nonfinite_iteration = seen.iteration
            return
        self.last = value
        self.last_iteration = seen.iteration
        self.num_values += 1
        self.total += value
        best = self.best
        if best is None or (value > best if self.higher_is_better else value < best):
            self.best = value
            self.best_iteration = seen.iteration
            self.best_ns = seen.mono_ns


@dataclass(frozen=True, slots=True)
class Quality:
    """A look at all quality metrics: over the attempt, and over the window that just closed."""

    attempt: dict[str, Summary]
    window: dict[str, Summary]
    num_dropped: int = 0


class QualityBook:
    """Collects observations from the training thread and folds them on the pipeline thread."""

    def __init__(self) -> None:
        self._inbox: deque[Observation] = deque()
        self._num_refused = 0
        self._num_unnamed = 0
        self._attempt: dict[str, Summary] = {}
        self._window: dict[str, Summary] = {}

    @property
    def num_dropped(self) -> int:
        """Return how many values were given up: too many at once, or of too many names."""
        return self._num_refused + self._num_unnamed

    def add(self, name: str, value: float, iteration: int, mono_ns: int) -> None:
        """Hand over one value that is on the host; training thread, under 1 µs, never blocks."""
        # The newest is refused, not the oldest lost: the first bad value is the one that matters.
        if len(self._inbox) < _CAPACITY:
            self._inbox.append(Observation(name, value, iteration, mono_ns))
        else:
            self._num_refused += 1

    def fold(self) -> list[Observation]:
        """Fold what has arrived; return the first non-finite value of each metric ever."""
        alarms: list[Observation] = []
        for _ in range(len(self._inbox)):
            seen = self._inbox.popleft()
            known = self._find(self._attempt, seen.name)
            if known is None:
                self._num_unnamed += 1
                continue
            had_none = known.num_nonfinite == 0
            known.add(seen)
            if had_none and known.num_nonfinite:
                alarms.append(seen)
            in_window = self._find(self._window, seen.name)
            if in_window is not None:
                in_window.add(seen)
        return alarms

    def look(self) -> Quality:
        """Return both looks and leave the window open."""
        return Quality(_copy(self._attempt), _copy(self._window), self.num_dropped)

    def take(self) -> Quality:
        """Return both looks and begin a new window."""
        window, self._window = self._window, {}
        return Quality(_copy(self._attempt), window, self.num_dropped)

    @staticmethod
    def _find(book: dict[str, Summary], name: str) -> Summary | None:
        known = book.get(name)
        if known is None and len(book) < MAX_NAMES:
            known = book[name] = Summary(higher_is_better=improves_upwards(name))
        return known


def _copy(book: dict[str, Summary]) -> dict[str, Summary]:
    return {name: replace(summary) for name, summary in book.items()}
