"""What the policy of costlens is compared with: fixed habits, formulas with perfect knowledge."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import numpy as np

from benchmarks.interval.scenario import Scenario
from benchmarks.interval.simulate import Array, Jobs, Policy
from costlens.protect.failures import Exposure, FailurePrior, failure_rate_per_s
from costlens.protect.interval import Rails
from costlens.protect.save_plan import SavePlan, plan_save

__all__ = ["BASELINES", "ORACLE_FACTORS", "adaptive", "young_s"]

ORACLE_FACTORS = np.geomspace(0.2, 5.0, 25)
"""The static intervals among which the oracle picks, as multiples of Young's."""

HALF_HOUR_S = 1800.0
STEPS = 1000
BUDGET = 0.035


def young_s(scenario: Scenario, *, with_write: bool = False) -> float:
    """Return Young's interval for the real mean of the first half."""
    costs = scenario.costs
    return sqrt(2 * (costs.stall_s + (costs.write_s if with_write else 0.0)) * scenario.mtbf_s)


def static(interval_s: float) -> Policy:
    """Return a policy that saves at a fixed interval."""
    return lambda _jobs, alive: np.full(alive.size, interval_s)


def _checkfreq(scenario: Scenario) -> Policy:
    def decide(jobs: Jobs, alive: Array) -> Array:
        late = jobs.live_s[alive] > scenario.work_s / 2
        early_s, late_s = (
            max(costs.cost_of_save_s(np.inf) / BUDGET, costs.write_s)
            for costs in (scenario.costs, scenario.late_costs or scenario.costs)
        )
        return np.where(late, late_s, early_s)

    return decide


def adaptive(
    scenario: Scenario,
    rate_per_s: Callable[[FailurePrior, Exposure], float] | None = None,
) -> Policy:
    """Return the policy of costlens, which learns; it is asked as in a run, job by job.

    Args:
        scenario: The job; what saves cost is measured, the rate of failure is not told.
        rate_per_s: Replaces the posterior.
    """
    plans: dict[int, SavePlan] = {}
    rails = Rails(max_loss_s=scenario.max_loss_s, min_s=scenario.step_s)

    def decide_one(jobs: Jobs, job: int) -> float:
        exposure = Exposure(int(jobs.num_failures[job]), jobs.exposed_s[job], jobs.exposed_s[job])
        rate = (
            failure_rate_per_s(scenario.prior, exposure, 1)
            if rate_per_s is None
            else rate_per_s(scenario.prior, exposure)
        )
        # What saves cost persists with the run: only its first attempt has to find out.
        costs = scenario.costs_at(float(jobs.live_s[job])) if jobs.num_saves[job] else None
        plans[job] = plan_save(
            costs, rate, rails, step=0, step_s=scenario.step_s, before=plans.get(job)
        )
        return plans[job].step * scenario.step_s

    return lambda jobs, alive: np.array([decide_one(jobs, int(job)) for job in alive])


def _one_gamma(prior: FailurePrior, exposure: Exposure) -> float:
    shape = 0.5
    return (shape + exposure.num_failures) / (shape * prior.own_mtbf_s + exposure.job_s)


BASELINES: dict[str, Callable[[Scenario], Policy]] = {
    "1,000 steps": lambda scenario: static(STEPS * scenario.step_s),
    "30 minutes": lambda _scenario: static(HALF_HOUR_S),
    "Young, stall": lambda scenario: static(young_s(scenario)),
    "Young, stall + write": lambda scenario: static(young_s(scenario, with_write=True)),
    "budget of 3.5 %": _checkfreq,
    "one Gamma": lambda scenario: adaptive(scenario, _one_gamma),
    "costlens": adaptive,
}
"""The columns of the table; Young knows the real mean, the last two learn it."""
