"""Records for tests: one call makes the record that a rank would have written."""

from __future__ import annotations

from typing import Any

from costlens.core.clock import NS_PER_S
from costlens.core.price_records import PricePart
from costlens.core.records import AttemptPart, Outcome, RankPart, RankRecord, RunPart, StartupPart
from costlens.core.telemetry_records import TelemetryPart
from costlens.core.training_records import (
    IterationTimePart,
    ProgressPart,
    QualityPart,
    RatesPart,
    WindowPart,
)
from costlens.core.window import ITERATION_BOUNDS_S, Histogram, Sketch

START = 1_760_000_000.0
"""Unix time at which attempt 1 of every made run begins."""


def make_price(
    amount: str, *, unit: str = "node", share: str = "1", currency: str = "USD"
) -> PricePart:
    """Return a price per hour; a share of 1 unless told otherwise."""
    source = f"COSTLENS_{unit.upper()}_HOUR_PRICE"
    return PricePart.model_validate(
        {"amount": amount, "unit": unit, "share": share, "currency": currency, "source": source}
    )


def make_iteration_time(*durations_s: float) -> IterationTimePart:
    """Return the durations of a rank whose iterations took these seconds."""
    histogram, sketch = Histogram(), Sketch()
    for duration_s in durations_s:
        histogram.add(round(duration_s * NS_PER_S))
        sketch.add(round(duration_s * NS_PER_S))
    median_ns = sketch.quantile_ns(0.5)
    return IterationTimePart(
        count=histogram.count,
        sum_ns=histogram.sum_ns,
        bounds_s=list(ITERATION_BOUNDS_S),
        buckets=histogram.buckets,
        sketch=sketch.bins,
        median_s=None if median_ns is None else median_ns / NS_PER_S,
    )


def make_record(
    attempt: int = 1,
    rank: int = 0,
    *,
    time_s: dict[str, float] | None = None,
    outcome: str = "completed",
    start_time: float | None = None,
    heartbeat_time: float | None = None,
    world_size: int = 1,
    progress: dict[str, int | None] | None = None,
    price: PricePart | None = None,
    **parts: Any,
) -> RankRecord:
    """Return the record of one rank in one attempt.

    Attempts follow one another 1000 s apart, each as long as its phases.

    Args:
        attempt: Number of the attempt.
        rank: The rank.
        time_s: Seconds per phase.
        outcome: How the attempt ended; ``running`` leaves it open.
        start_time: Unix time of the start.
        heartbeat_time: Unix time of the record; by default the end of the phases.
        world_size: Ranks of the job.
        progress: Counts; those not named keep their defaults.
        price: The price; None is unknown.
        **parts: Further fields of the record, and of its attempt with the prefix ``attempt_``.
    """
    time_ns = {name: round(seconds * NS_PER_S) for name, seconds in (time_s or {}).items()}
    start = START + 1000.0 * (attempt - 1) if start_time is None else start_time
    beat = start + sum(time_ns.values()) / NS_PER_S if heartbeat_time is None else heartbeat_time
    extra = {k.removeprefix("attempt_"): parts.pop(k) for k in [*parts] if k.startswith("attempt_")}
    return RankRecord(
        run=RunPart(id="tiny-1", name="tiny", framework="torch 2", costlens_version="0.1.0"),
        attempt=AttemptPart(
            number=attempt,
            launch_key=f"key-{attempt}",
            outcome=Outcome(outcome),
            start_time=start,
            heartbeat_time=beat,
            end_time=None if outcome == "running" else beat,
            **extra,
        ),
        rank=RankPart(
            rank=rank, world_size=world_size, host_name=f"node-{rank // 8}", pid=100 + rank
        ),
        progress=ProgressPart(**(progress or {})),
        time_ns=time_ns,
        total_ns=sum(time_ns.values()),
        price=price,
        **parts,
    )


__all__ = [
    "START",
    "QualityPart",
    "RatesPart",
    "StartupPart",
    "TelemetryPart",
    "WindowPart",
    "make_iteration_time",
    "make_price",
    "make_record",
]
