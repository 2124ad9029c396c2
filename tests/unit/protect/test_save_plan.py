"""When the next save is due: in steps, steady, and within the loss that is tolerated."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.interval.__main__ import regret_of_costlens, run_costlens
from benchmarks.interval.scenario import COLD, SCENARIOS, Scenario
from costlens.protect.interval import CheckpointCosts, Rails
from costlens.protect.save_plan import plan_save

RATE = 1 / 14_400.0
COSTS = CheckpointCosts(stall_s=4.0, write_s=60.0)


def test_the_first_save_proves_the_store_within_a_minute() -> None:
    """Nothing is measured yet: 60 s of steps, and never less than one step."""
    assert plan_save(None, RATE, Rails(), step=0, step_s=0.5).step == 120
    assert plan_save(None, RATE, Rails(), step=7, step_s=100.0).step == 8
    assert plan_save(None, RATE, Rails(max_loss_s=20.0), step=0, step_s=0.5).step == 40


def test_an_interval_is_whole_steps_and_at_least_one() -> None:
    """C042: at most one save a step and never none; rounding down keeps a limit on the loss."""
    plan = plan_save(COSTS, RATE, Rails(max_loss_s=200.0), step=10, step_s=7.0)
    assert plan.step == 10 + int((200.0 - 64.0) // 7.0)
    assert plan_save(COSTS, RATE, Rails(max_loss_s=65.0), step=10, step_s=500.0).step == 11


def test_small_changes_do_not_move_the_saves() -> None:
    """Within a quarter the interval stays; beyond it, or where a rail speaks, it follows."""
    before = plan_save(COSTS, RATE, Rails(), step=0, step_s=1.0)
    near = plan_save(COSTS, RATE * 1.4, Rails(), step=0, step_s=1.0, before=before)
    far = plan_save(COSTS, RATE * 1.8, Rails(), step=0, step_s=1.0, before=before)
    capped = plan_save(COSTS, RATE, Rails(max_loss_s=380.0), step=0, step_s=1.0, before=before)
    assert near.decision == before.decision
    assert far.step < before.step
    assert capped.decision is not None
    assert capped.decision.rail == "tolerable_loss"


@pytest.mark.parametrize("step_s", [0.0, -1.0, float("nan")])
def test_a_step_that_takes_no_time_is_refused(step_s: float) -> None:
    """An error names the value."""
    with pytest.raises(ValueError, match="step_s must be finite and > 0"):
        plan_save(COSTS, RATE, Rails(), step=0, step_s=step_s)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.key)
def test_half_a_percent_above_the_best_fixed_interval(scenario: Scenario) -> None:
    """In every scenario, learning included, against the interval that is best in hindsight."""
    assert regret_of_costlens(scenario, num_seeds=200) <= 0.005


@pytest.mark.slow
@pytest.mark.parametrize("scenario", COLD, ids=lambda scenario: scenario.key)
def test_a_cold_start_with_a_wrong_prior(scenario: Scenario) -> None:
    """Six hours cost 1 % more at most with a prior within ten times, 2 % within a hundred."""
    is_near = 0.1 <= scenario.prior_factor <= 10
    assert regret_of_costlens(scenario, num_seeds=100) <= (0.01 if is_near else 0.02)


def test_no_failure_loses_more_than_the_tolerated_work() -> None:
    """With a limit the largest loss stays below it plus the spread of a write and a stall."""
    limit_s = 400.0
    scenario = replace(SCENARIOS[1], max_loss_s=limit_s)
    lost_s = run_costlens(scenario, num_seeds=20).max_lost_s
    unlimited_s = run_costlens(SCENARIOS[1], num_seeds=20).max_lost_s
    assert lost_s.max() <= limit_s + scenario.costs.write_s + scenario.costs.stall_s
    assert unlimited_s.max() > lost_s.max()
