"""What a rank's record says of the training: how much, how fast and how well, so far and lately.

``core/snapshot_builder.py`` fills it from the counters and the durations of iterations,
``account/throughput.py`` makes rates of them. Absent means unknown, never zero.
"""

from __future__ import annotations

from pydantic import Field

from costlens.core.part import Count, Part
from costlens.core.use_records import UsePart

__all__ = ["IterationTimePart", "ProgressPart", "QualityPart", "RatesPart", "WindowPart"]


class ProgressPart(Part):
    """Counts of one rank in one attempt, observed and never derived from one another."""

    iterations: Count = 0
    micro_batches: Count = 0
    optimizer_steps: Count | None = Field(None, description="Absent where no optimizer is watched.")
    skipped_steps: Count | None = None
    samples: Count | None = None
    slots: Count | None = None
    tokens: Count | None = None
    loss_tokens: Count | None = None
    validation_batches: Count = 0
    test_batches: Count = 0
    total_steps: Count | None = Field(
        None, description="Optimizer steps the loop will make, where it is known."
    )


class IterationTimePart(Part):
    """Durations of iterations after the first, without saves and evaluation."""

    count: Count = 0
    sum_ns: Count = 0
    bounds_s: list[float] = Field(default_factory=list)
    buckets: list[int] = Field(default_factory=list)
    sketch: dict[int, int] = Field(
        default_factory=dict, description="Logarithmic bins; a quantile is within 1 %."
    )
    median_s: float | None = None
    p90_s: float | None = None
    p99_s: float | None = None


class RatesPart(Part):
    """Rates of training per second of iteration time: in the newest attempt, or in a window.

    Neither start-up nor saves nor evaluation are in it.
    """

    iterations_per_s: float | None = None
    steps_per_s: float | None = None
    samples_per_s: float | None = None
    tokens_per_s: float | None = None
    slots_per_s: float | None = None


class QualityPart(Part):
    """One quality metric of an attempt."""

    last: float | None = None
    last_iteration: int | None = None
    best: float | None = None
    best_iteration: int | None = None
    best_after_s: float | None = Field(
        None, description="Paid seconds of this rank up to the best value."
    )
    higher_is_better: bool = False
    mean: float | None = None
    num_values: int = 0
    num_nonfinite: int = 0
    first_nonfinite_iteration: int | None = None
    cost_to_best: str | None = Field(
        None, description="Money of the whole job up to the best value; only in the merged record."
    )


class WindowPart(Part):
    """One window, as it stands in a segment and among the newest windows of a record."""

    index: int
    start_time: float
    end_time: float
    phase_ns: dict[str, int]
    counts: dict[str, int]
    num_iterations: int = 0
    iteration_mean_s: float | None = None
    iteration_max_s: float | None = None
    rates: RatesPart = RatesPart()
    quality: dict[str, float] = Field(default_factory=dict)
    use: UsePart | None = None
