"""The interval of checkpoints: the published optima, the money in it, and the rails."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costlens.protect.interval import (
    CheckpointCosts,
    IntervalDecision,
    Rails,
    decide_interval,
    optimum_s,
)

HOUR_S = 3600.0


@pytest.mark.parametrize(("mtbf_h", "minutes"), [(24, 117), (6, 57), (0.25, 9.1)])
def test_the_optimum_is_daly_s(mtbf_h: float, minutes: float) -> None:
    """Daly (2006) gives these for a save of 5 minutes and a restart of 10."""
    costs = CheckpointCosts(stall_s=300, restart_s=600)
    assert optimum_s(costs, 1 / (mtbf_h * HOUR_S)) / 60 == pytest.approx(minutes, rel=0.01)


@pytest.mark.parametrize(
    ("save_s", "mtbf_s", "expected_s"),
    [(60, 24 * HOUR_S, 3180), (30, HOUR_S, 445), (120, 60, 57)],
)
def test_the_optimum_of_common_jobs(save_s: float, mtbf_s: float, expected_s: float) -> None:
    """C042: 60 s and 24 h give 3180 s (Young's first order 3220), even where a save outlasts M."""
    assert optimum_s(CheckpointCosts(save_s), 1 / mtbf_s) == pytest.approx(expected_s, rel=0.01)


def money_per_useful_s(costs: CheckpointCosts, rate: float, interval_s: float) -> float:
    """Return the objective as the documentation of ``optimum_s`` writes it."""
    per_s = costs.money_per_s or 1.0
    per_failure = per_s * (1 / rate + costs.restart_s) + costs.money_per_failure
    lost = math.expm1(rate * (interval_s + costs.stall_s + costs.slowdown * costs.write_s))
    return (per_failure * lost + costs.money_per_save) / interval_s * math.exp(rate * costs.write_s)


@given(
    stall_s=st.floats(0.01, 300),
    write_s=st.floats(0, 60),
    slowdown=st.floats(0, 0.2),
    mtbf_s=st.floats(2 * HOUR_S, 1000 * HOUR_S),
    per_hour=st.floats(0.5, 50_000),
    per_save=st.floats(0, 0.2),
    restart_s=st.floats(0, 1800),
)
def test_no_other_interval_is_cheaper(
    *,
    stall_s: float,
    write_s: float,
    slowdown: float,
    mtbf_s: float,
    per_hour: float,
    per_save: float,
    restart_s: float,
) -> None:
    """The closed form is the minimum of the money per useful second, wherever one looks."""
    costs = CheckpointCosts(
        stall_s, write_s, slowdown, restart_s, per_hour / HOUR_S, per_save, per_save
    )
    rate = 1 / mtbf_s
    best_s = optimum_s(costs, rate)
    if best_s < costs.write_s:  # a write that outlasts the interval slows all of it
        return
    best = money_per_useful_s(costs, rate, best_s)
    for factor in (0.5, 0.9, 0.99, 1.01, 1.1, 2.0):
        assert money_per_useful_s(costs, rate, best_s * factor) >= best * (1 - 1e-9)


def test_rare_failures_keep_their_digits() -> None:
    """Where the closed form would cancel to nothing, Young's first order answers."""
    assert optimum_s(CheckpointCosts(1e-3), 1e-9) == pytest.approx(math.sqrt(2e6), rel=1e-6)


def test_money_of_a_save_counts_as_a_longer_stall() -> None:
    """0.02 a save at 1.2 an hour is worth a minute; without a price only seconds count."""
    priced = CheckpointCosts(4, money_per_s=1.2 / HOUR_S, money_per_save=0.02)
    slower = CheckpointCosts(64, money_per_s=1.2 / HOUR_S)
    unpriced = CheckpointCosts(4, money_per_save=0.02)
    rate = 1 / (18 * HOUR_S)
    assert optimum_s(priced, rate) == pytest.approx(optimum_s(slower, rate), rel=0.01)
    assert optimum_s(unpriced, rate) == optimum_s(CheckpointCosts(4), rate)


def decide(costs: CheckpointCosts, mtbf_s: float, **rails: float) -> IntervalDecision:
    """Return the decision for a mean time between failures."""
    return decide_interval(costs, 1 / mtbf_s, Rails(**rails))


def test_a_write_is_durable_before_the_next_begins() -> None:
    """Durability goes before the tolerable loss, and what cannot be kept is said."""
    slow = CheckpointCosts(stall_s=1, write_s=600)
    decision = decide(slow, 0.5 * HOUR_S, max_loss_s=300)
    assert (decision.rail, decision.is_loss_kept) == ("durability", False)
    assert decision.interval_s == pytest.approx(660)
    assert decision.worst_loss_s == pytest.approx(660 + 600 + 1)


def test_the_tolerable_loss_goes_before_the_overhead() -> None:
    """The loss a user tolerates is kept although saving then takes more than its budget."""
    costs = CheckpointCosts(stall_s=20, write_s=10)
    decision = decide(costs, 24 * HOUR_S, max_loss_s=120, overhead_budget=0.1)
    assert decision == IntervalDecision(
        interval_s=90.0,
        optimum_s=decision.optimum_s,
        rail="tolerable_loss",
        worst_loss_s=120.0,
        is_loss_kept=True,
    )


def test_saving_keeps_to_its_budget() -> None:
    """C042: a save of 120 s with a failure a minute does not eat the job."""
    decision = decide(CheckpointCosts(120), 60.0)
    assert (decision.rail, decision.interval_s) == ("overhead", pytest.approx(1200.0))


def test_absolute_bounds() -> None:
    """C042: never below a step, never for ever."""
    quick, rare = CheckpointCosts(1e-6), CheckpointCosts(60)
    assert decide(quick, 60.0, min_s=2.0).rail == "minimum"
    assert decide(quick, 60.0, min_s=2.0).interval_s == 2.0
    assert decide(rare, 1e6 * HOUR_S).rail == "maximum"
    assert decide(rare, 1e6 * HOUR_S).interval_s == 6 * HOUR_S


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, math.inf])
def test_a_rate_that_is_none_is_refused(rate: float) -> None:
    """An error names the value."""
    with pytest.raises(ValueError, match=f"got {rate}"):
        optimum_s(CheckpointCosts(1), rate)


def test_costs_that_are_none_are_refused() -> None:
    """A negative or unknown stall would turn the formula round."""
    with pytest.raises(ValueError, match="stall_s must be finite and >= 0, got nan"):
        CheckpointCosts(math.nan)
