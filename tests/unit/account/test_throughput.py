"""How fast a run trains."""

from __future__ import annotations

import pytest

from costlens.account.throughput import (
    compute_rates,
    merge_iteration_times,
    merge_rates,
    merge_startup,
)
from costlens.core.clock import NS_PER_S
from costlens.core.records import StartupPart
from costlens.core.training_records import RatesPart
from tests.unit.account.build import make_iteration_time, make_record


def test_window_rate_and_average_rate_agree_at_steady_speed() -> None:
    """C012: 10 steps × 100 tokens × 0.1 s: the window and the run both show 1000 tokens/s."""
    iteration_ns = NS_PER_S // 10
    run = compute_rates({"iterations": 10, "tokens": 1000}, 10 * iteration_ns)
    window = compute_rates({"iterations": 1, "tokens": 100}, iteration_ns)
    assert run.tokens_per_s == window.tokens_per_s == 1000.0
    assert run.iterations_per_s == 10.0


@pytest.mark.parametrize(("accumulate", "num_steps"), [(1, 40), (4, 10)])
def test_samples_do_not_depend_on_accumulation(accumulate: int, num_steps: int) -> None:
    """C001: 40 micro-batches × 4 samples × 10 ms are 400 samples/s whatever the accumulation."""
    counts = {"iterations": 40, "samples": 160, "optimizer_steps": 40 // accumulate}
    rates = compute_rates(counts, 40 * 10_000_000)
    assert rates.samples_per_s == 400.0
    assert rates.steps_per_s == num_steps / 0.4


@pytest.mark.parametrize(
    ("counts", "iteration_time_ns"),
    [({"iterations": 1, "tokens": 0}, 5), ({"iterations": 3, "tokens": 9}, 0), ({}, 0), ({}, 5)],
)
def test_nothing_gives_no_rate(counts: dict, iteration_time_ns: int) -> None:
    """C108: 0 tokens or 0 s: the rate is absent, never 0, infinite or NaN."""
    assert compute_rates(counts, iteration_time_ns).tokens_per_s is None


def test_ranks_add_tokens_and_share_iterations() -> None:
    """Two ranks at 100 tokens/s and 5 iterations/s are a job at 200 tokens/s and 5 iterations/s."""
    records = [
        make_record(
            rank=rank,
            rates=RatesPart(iterations_per_s=5.0, steps_per_s=2.5, tokens_per_s=100.0),
            iteration_time=make_iteration_time(0.2),
        )
        for rank in (0, 1)
    ]
    rates = merge_rates(records)
    assert (rates.iterations_per_s, rates.steps_per_s, rates.tokens_per_s) == (5.0, 2.5, 200.0)
    assert rates.samples_per_s is None


def test_a_rank_that_hides_its_tokens_hides_the_jobs() -> None:
    """A sum over some of the ranks would look like a slower job."""
    seen = make_record(
        rank=0, rates=RatesPart(tokens_per_s=100.0), iteration_time=make_iteration_time(0.2)
    )
    blind = make_record(
        rank=1, rates=RatesPart(iterations_per_s=5.0), iteration_time=make_iteration_time(0.2)
    )
    idle = make_record(rank=1)
    assert merge_rates([seen, blind]).tokens_per_s is None
    assert merge_rates([seen, idle]).tokens_per_s == 100.0, (
        "a rank that has not iterated is no part"
    )


def test_iteration_durations_of_ranks_are_pooled() -> None:
    """The median over two ranks is that of all their iterations together, within 1 %."""
    merged = merge_iteration_times(
        [make_iteration_time(0.1, 0.1, 0.1), make_iteration_time(0.3, 0.3)]
    )
    assert (merged.count, merged.sum_ns) == (5, 900_000_000)
    assert merged.median_s == pytest.approx(0.1, rel=0.01)
    assert merged.p99_s == pytest.approx(0.3, rel=0.01)
    assert sum(merged.buckets) == 5
    assert merge_iteration_times([]).median_s is None


def test_startup_is_that_of_the_slowest_rank() -> None:
    """A job starts when its last rank has; what no rank saw is absent."""
    merged = merge_startup([StartupPart(process_s=2.0, setup_s=9.0), StartupPart(process_s=3.0)])
    assert (merged.process_s, merged.setup_s, merged.first_iteration_s) == (3.0, 9.0, None)


def test_a_job_waited_as_long_as_the_rank_that_came_first() -> None:
    """One rank that knows is enough; where none does, the reason of one is told."""
    known = StartupPart(gang_wait_s=4.0, first_step_s=9.0)
    unknown = StartupPart(gang_wait_unknown="nobody looked", first_step_s=9.5)
    merged = merge_startup([unknown, known])
    assert (merged.gang_wait_s, merged.gang_wait_unknown, merged.first_step_s) == (4.0, None, 9.5)
    merged = merge_startup([unknown, StartupPart()])
    assert (merged.gang_wait_s, merged.gang_wait_unknown) == (None, "nobody looked")
