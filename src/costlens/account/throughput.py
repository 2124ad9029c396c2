"""How fast a run trains: rates of a rank from counts and iteration time, and those of the job.

Start-up, the first iteration, saves and evaluation are not training speed; whoever counts leaves
them out of both numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from costlens.core.clock import NS_PER_S
from costlens.core.records import RankRecord, StartupPart
from costlens.core.training_records import IterationTimePart, RatesPart
from costlens.core.window import Sketch

__all__ = ["compute_rates", "merge_iteration_times", "merge_rates", "merge_startup"]

_RATES = {
    "iterations_per_s": "iterations",
    "steps_per_s": "optimizer_steps",
    "samples_per_s": "samples",
    "tokens_per_s": "tokens",
    "slots_per_s": "slots",
}


def compute_rates(counts: Mapping[str, int], iteration_time_ns: int) -> RatesPart:
    """Return counts per second of iteration time; absent where either is unknown or nothing.

    The same function serves a window and an attempt, so the two agree wherever the speed is steady.

    Args:
        counts: What was counted in the iterations that took ``iteration_time_ns``, by the names of
            ``ProgressPart``.
        iteration_time_ns: Sum of the durations of those iterations in nanoseconds, >= 0.
    """
    if iteration_time_ns <= 0:
        return RatesPart()
    iteration_time_s = iteration_time_ns / NS_PER_S
    return RatesPart(
        **{
            rate: counts[count] / iteration_time_s
            for rate, count in _RATES.items()
            if counts.get(count)
        }
    )


def merge_rates(records: Sequence[RankRecord]) -> RatesPart:
    """Return the rates of a job in one attempt.

    Samples and tokens of ranks add up; iterations and steps are made by all ranks together, so
    theirs is the mean. Where one training rank does not know a number, the job does not either.

    Args:
        records: The ranks' records of one attempt.
    """
    training = [record.rates for record in records if record.iteration_time.count > 0]

    def known(name: str) -> list[float]:
        values = [getattr(rates, name) for rates in training]
        return [] if None in values else values

    def mean(name: str) -> float | None:
        values = known(name)
        return sum(values) / len(values) if values else None

    def total(name: str) -> float | None:
        values = known(name)
        return sum(values) if values else None

    return RatesPart(
        iterations_per_s=mean("iterations_per_s"),
        steps_per_s=mean("steps_per_s"),
        samples_per_s=total("samples_per_s"),
        tokens_per_s=total("tokens_per_s"),
        slots_per_s=total("slots_per_s"),
    )


def merge_iteration_times(parts: Iterable[IterationTimePart]) -> IterationTimePart:
    """Return the iteration durations of all ranks; sketches add up: quantiles stay within 1 %."""
    sketch = Sketch()
    buckets: list[int] = []
    bounds_s: list[float] = []
    count = sum_ns = 0
    for part in parts:
        sketch.merge(Sketch(dict(part.sketch), sum(part.sketch.values())))
        count += part.count
        sum_ns += part.sum_ns
        if not bounds_s:
            bounds_s, buckets = part.bounds_s, [0] * len(part.buckets)
        if part.bounds_s == bounds_s:
            buckets = [have + more for have, more in zip(buckets, part.buckets, strict=True)]

    def quantile_s(q: float) -> float | None:
        value_ns = sketch.quantile_ns(q)
        return None if value_ns is None else value_ns / NS_PER_S

    return IterationTimePart(
        count=count,
        sum_ns=sum_ns,
        bounds_s=bounds_s,
        buckets=buckets,
        sketch=dict(sorted(sketch.bins.items())),
        median_s=quantile_s(0.5),
        p90_s=quantile_s(0.9),
        p99_s=quantile_s(0.99),
    )


def merge_startup(parts: Sequence[StartupPart]) -> StartupPart:
    """Return each share of start-up where it took longest: the job waits for that rank."""

    def longest(name: str) -> float | None:
        known = [value for part in parts if (value := getattr(part, name)) is not None]
        return max(known, default=None)

    gang_wait_s = longest("gang_wait_s")
    reasons = [part.gang_wait_unknown for part in parts if part.gang_wait_unknown]
    return StartupPart(
        import_s=longest("import_s"),
        allocation_s=longest("allocation_s"),
        process_s=longest("process_s"),
        setup_s=longest("setup_s"),
        first_iteration_s=longest("first_iteration_s"),
        first_step_s=longest("first_step_s"),
        gang_wait_s=gang_wait_s,
        gang_wait_unknown=None if gang_wait_s is not None else next(iter(reasons), None),
    )
