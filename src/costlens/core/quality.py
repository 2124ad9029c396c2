"""Quality of the model as the run goes: loss, gradient norm, learning rate and chosen validation metrics.

Doorways append numbers that are on the host already, ``observe/device_values`` appends those it
read after a device event; the pipeline thread folds them into bounded summaries that spans, metrics
and the record share.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace

__all__ = ["MAX_NAMES", "Observation", "Quality", "QualityBook", "Summary", "improves_upwards"]

MAX_NAMES = 16
"""Most quality names of a run; further ones are counted as dropped (bounded series, DESIGN law 5)."""

_CAPACITY = 8192
_UPWARDS = ("acc", "auc", "f1", "bleu", "rouge", "recall", "precision", "map", "iou", "r2", "score")


def improves_upwards(name: str) -> bool:
    """Return whether a higher value of a metric of this name is better; anything unknown counts as a loss."""
    lowered = name.lower()
    return any(word in lowered for word in _UPWARDS)


@dataclass(frozen=True, slots=True)
class Observation:
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


@dataclass(frozen=True, slots=True)
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

    def add(self, seen: Observation) -> Summary:
        """Return the summary with one more observation."""
        if not math.isfinite(seen.value):
            first = self.first_nonfinite_iteration
            first = seen.iteration if first is None else min(first, seen.iteration)
            return replace(
                self, num_nonfinite=self.num_nonfinite + 1, first_nonfinite_iteration=first
            )
        is_better = self.best is None or (
            seen.value > self.best if self.higher_is_better else seen.value < self.best
        )
        best = (
            {"best": seen.value, "best_iteration": seen.iteration, "best_ns": seen.mono_ns}
            if is_better
            else {}
        )
        return replace(
            self,
            last=seen.value,
            last_iteration=seen.iteration,
            num_values=self.num_values + 1,
            total=self.total + seen.value,
            **best,  # type: ignore[arg-type]
        )


@dataclass(frozen=True, slots=True)
class Quality:
    """A look at all quality metrics: over the attempt, and over the window that just closed."""

    attempt: dict[str, Summary]
    window: dict[str, Summary]
    num_dropped: int = 0


class QualityBook:
    """Collects observations from the training thread and folds them on the pipeline thread."""

    def __init__(self) -> None:
        self._inbox: deque[Observation] = deque(maxlen=_CAPACITY)
        self._num_in = 0
        self._num_out = 0
        self._attempt: dict[str, Summary] = {}
        self._window: dict[str, Summary] = {}
        self.num_dropped = 0

    def add(self, name: str, value: float, iteration: int, mono_ns: int) -> None:
        """Hand over one value that is on the host already; training thread, under 1 µs, never blocks."""
        self._num_in += 1
        self._inbox.append(Observation(name, value, iteration, mono_ns))

    def fold(self) -> list[Observation]:
        """Fold what has arrived and return the first non-finite value of each metric that had none before."""
        alarms: list[Observation] = []
        while self._inbox:
            seen = self._inbox.popleft()
            self._num_out += 1
            known = self._attempt.get(seen.name)
            if known is None:
                if len(self._attempt) >= MAX_NAMES:
                    self.num_dropped += 1
                    continue
                known = Summary(higher_is_better=improves_upwards(seen.name))
            if not math.isfinite(seen.value) and known.num_nonfinite == 0:
                alarms.append(seen)
            self._attempt[seen.name] = known.add(seen)
            fresh = Summary(higher_is_better=known.higher_is_better)
            self._window[seen.name] = self._window.get(seen.name, fresh).add(seen)
        return alarms

    def take(self) -> Quality:
        """Return both looks and begin a new window."""
        window, self._window = self._window, {}
        lost = self.num_dropped + max(0, self._num_in - self._num_out - len(self._inbox))
        return Quality(dict(self._attempt), window, lost)
