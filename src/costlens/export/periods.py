"""Trace periods: what the windows of a minute add up to, and which of their iterations get spans.

``otel_traces`` fills them once a window and turns them into spans when they are over. Knows no
OpenTelemetry; monotonic nanoseconds throughout.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from costlens.core.clock import NS_PER_S
from costlens.core.device_records import GpuPart
from costlens.core.host_records import HostPart
from costlens.core.phases import NAMES, NUM_PHASES
from costlens.core.quality import Observation
from costlens.core.telemetry_records import Detail
from costlens.core.window import Iteration, Sketch, Window
from costlens.export.host_periods import summarize_host

__all__ = [
    "COUNTS",
    "MAX_SPANS_PER_HOUR",
    "Period",
    "SpanBudget",
    "added_durations",
    "lay_out",
    "phase_times",
]

MAX_SPANS_PER_HOUR = 1500
"""Most spans of one rank in any hour (CONTRIBUTING.md, law 5)."""

_NS_PER_HOUR = 3600 * NS_PER_S
_MAX_SLOW = 3

COUNTS = {
    "iterations": "costlens.iterations",
    "micro_batches": "costlens.micro_batches",
    "optimizer_steps": "costlens.steps",
    "skipped_steps": "costlens.steps.skipped",
    "samples": "costlens.samples",
    "slots": "costlens.tokens.slots",
    "tokens": "costlens.tokens.tokens",
    "loss_tokens": "costlens.tokens.loss",
    "validation_batches": "costlens.evaluation.batches.validation",
    "test_batches": "costlens.evaluation.batches.test",
}
"""Counters of a record, and the span attribute of each."""

_RATES = ("optimizer_steps", "samples", "slots", "tokens")


class SpanBudget:
    """Says whether spans may still be exported: a bucket that refills steadily.

    It holds 300 and refills by 1200 an hour, so that no hour, wherever it begins, sees more than
    1500, and a burst of slow iterations does not silence the rest of the hour.
    """

    _BURST = 300
    _RESERVE = 60

    def __init__(self) -> None:
        self._left = float(self._BURST)
        self._at_ns: int | None = None
        self.num_refused = 0

    @property
    def is_half_full(self) -> bool:
        """Return whether there is room beyond what every period needs."""
        return self._left > self._BURST / 2

    def refill(self, now_ns: int) -> None:
        """Let the time since the last call count."""
        passed_ns = 0 if self._at_ns is None else max(0, now_ns - self._at_ns)
        per_hour = MAX_SPANS_PER_HOUR - self._BURST
        self._left = min(self._BURST, self._left + passed_ns * per_hour / _NS_PER_HOUR)
        self._at_ns = now_ns

    def take_asked(self, num_spans: int) -> bool:
        """Return whether ``num_spans`` more fit and leave room for what every period needs.

        Asking for everything is no promise to show it: what does not fit is not counted here.
        """
        return self._left - num_spans >= self._RESERVE and self.take(num_spans)

    def take(self, num_spans: int) -> bool:
        """Return whether ``num_spans`` more fit, and count them either way."""
        if num_spans > self._left:
            self.num_refused += num_spans
            return False
        self._left -= num_spans
        return True


@dataclass(slots=True)
class Period:
    """The windows that began in one trace period, added up.

    Args:
        number: Unix time divided by the length of a period, rounded down.
        start_ns: Start of its first window.
        end_ns: End of its newest window.

    Attributes:
        host_before: The host's sample at its start, where there is one.
        host_after: The newest.
        detail: The newest that was not normal in one of its windows, else normal.
    """

    number: int
    start_ns: int
    end_ns: int
    phase_ns: list[int] = field(default_factory=lambda: [0] * NUM_PHASES)
    counts: dict[str, int] = field(default_factory=dict)
    num_iterations: int = 0
    iteration_sum_ns: int = 0
    iteration_max_ns: int = 0
    sketch: Sketch = field(default_factory=Sketch)
    quality: dict[str, float] = field(default_factory=dict)
    kept: list[Iteration] = field(default_factory=list)
    alarms: list[Observation] = field(default_factory=list)
    gpus_before: Sequence[GpuPart] = ()
    gpus: Sequence[GpuPart] = ()
    detail: Detail = Detail.NORMAL
    host_before: HostPart | None = None
    host_after: HostPart | None = None

    def add(self, window: Window, durations: Sketch, quality: Mapping[str, float]) -> None:
        """Add a window that began in this period.

        Args:
            window: The window; its kept iterations go to the period they began in, by themselves.
            durations: The durations of its iterations.
            quality: Newest finite value of each quality metric seen in it.
        """
        self.end_ns = window.end_ns
        self.phase_ns = [a + b for a, b in zip(self.phase_ns, window.phase_ns, strict=True)]
        for name, count in window.counts.items():
            self.counts[name] = self.counts.get(name, 0) + count
        if window.detail is not Detail.NORMAL:
            self.detail = window.detail
        self.num_iterations += window.num_iterations
        self.iteration_sum_ns += window.iteration_sum_ns
        self.iteration_max_ns = max(self.iteration_max_ns, window.iteration_max_ns)
        self.sketch.merge(durations)
        self.quality.update(quality)

    def attributes(self) -> dict[str, float]:
        """Return what the period came to, as span attributes; seconds, and rates per second."""
        found: dict[str, float] = {
            attribute: self.counts[name]
            for name, attribute in COUNTS.items()
            if name in self.counts
        }
        seconds = (self.end_ns - self.start_ns) / NS_PER_S
        for name in _RATES:
            if name in self.counts and seconds > 0:
                found[f"{COUNTS[name]}.rate"] = self.counts[name] / seconds
        found.update(phase_times(dict(zip(NAMES, self.phase_ns, strict=True))))
        if self.num_iterations:
            mean_s = self.iteration_sum_ns / self.num_iterations / NS_PER_S
            found["costlens.iteration.duration.mean"] = mean_s
            found["costlens.iteration.duration.max"] = self.iteration_max_ns / NS_PER_S
        median_ns = self.sketch.quantile_ns(0.5)
        if median_ns is not None:
            found["costlens.iteration.duration.median"] = median_ns / NS_PER_S
        found.update(summarize_host(self.host_before, self.host_after))
        found.update({f"costlens.quality.{name}": value for name, value in self.quality.items()})
        return {name: value for name, value in found.items() if math.isfinite(value)}

    def choose(self, budget: SpanBudget) -> list[Iteration]:
        """Return the iterations that get spans, in order, as far as the budget goes.

        These are the first of the attempt, the bad ones, one sampled, and the slowest; two more
        slow ones while the budget is more than half full; and those that somebody asked for, while
        it is not nearly empty. Not being chosen is no drop.
        """
        bad = {alarm.iteration for alarm in self.alarms}
        sampled = [kept for kept in self.kept if kept.reason == "sampled"]
        slow = [kept for kept in self.kept if kept.reason == "slow"]
        slow.sort(key=lambda kept: kept.iteration_ns, reverse=True)
        chosen = {k.index: k for k in self.kept if k.reason == "first" or k.index in bad}
        chosen.update({k.index: k for k in (*sampled[:1], *slow[:1])})
        further = [kept for kept in slow[1:_MAX_SLOW] if kept.index not in chosen]
        fits = [kept for kept in chosen.values() if budget.take(_num_spans(kept))]
        fits += [kept for kept in further if budget.is_half_full and budget.take(_num_spans(kept))]
        seen = {kept.index for kept in (*chosen.values(), *fits)}
        asked = [kept for kept in self.kept if kept.is_asked and kept.index not in seen]
        fits += [kept for kept in asked if budget.take_asked(_num_spans(kept))]
        return sorted(fits, key=lambda kept: kept.index)


def phase_times(phase_ns: Mapping[str, int]) -> dict[str, float]:
    """Return seconds per phase that took any time, as span attributes, from nanoseconds."""
    return {
        f"costlens.phase.time.{name}": value / NS_PER_S
        for name, value in phase_ns.items()
        if value > 0
    }


def added_durations(now: Mapping[int, int], before: Mapping[int, int]) -> Sketch:
    """Return the durations counted between two readings of a growing sketch's bins."""
    bins = {index: count - before.get(index, 0) for index, count in now.items()}
    bins = {index: count for index, count in bins.items() if count > 0}
    return Sketch(bins, sum(bins.values()))


def _num_spans(kept: Iteration) -> int:
    return 1 + sum(value > 0 for value in kept.phase_ns)


def lay_out(kept: Iteration) -> Iterator[tuple[str, int, int]]:
    """Yield name, start and end of each phase of an iteration, laid end to end.

    Only the sums are known, not when each phase was entered and left; the order is the usual one.
    """
    at_ns = kept.start_ns
    for name, value in zip(NAMES, kept.phase_ns, strict=True):
        if value > 0:
            until_ns = min(at_ns + value, kept.end_ns)
            yield name, at_ns, until_ns
            at_ns = until_ns
