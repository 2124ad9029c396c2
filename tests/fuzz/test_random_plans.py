"""Lightning's hooks contract under random configurations: see ``check.py`` for what must hold.

The seeds are fixed, so every run tests the same trainings; ``python -m tests.fuzz`` tests others.
"""

from __future__ import annotations

import pytest

from tests.fuzz.check import find_problems
from tests.fuzz.draw import draw_plan, minimise
from tests.fuzz.plan import Plan

NUM_PLANS = 60
# Plans with a limit on time, or that interrupt a training, depend on how fast the machine is just
# then: a busy one may part the two trainings once. What is wrong is wrong in every try.
TRIES = 3


@pytest.mark.parametrize("seed", range(1, NUM_PLANS + 1))
def test_a_random_training_is_the_same_and_counted_rightly(seed) -> None:
    """Weights, losses, random numbers, hooks and exits are equal; the record tells the truth."""
    plan = draw_plan(seed)
    problems: list[str] = []
    for _ in range(TRIES):
        problems = find_problems(plan)
        if not problems:
            return
    pytest.fail(f"{plan.describe()}: {problems}")


def test_a_plan_is_drawn_from_its_seed_alone() -> None:
    """The same seed gives the same plan, and few seeds share one."""
    plans = [draw_plan(seed) for seed in range(200)]
    assert plans == [draw_plan(seed) for seed in range(200)]
    assert len(set(plans)) > 190


def test_a_failing_plan_is_made_as_simple_as_it_goes() -> None:
    """What has nothing to do with a failure goes back to its default."""
    plan = Plan(max_epochs=3, num_rows=14, accumulate=4, logger="two", precision="64-true")
    found = minimise(plan, lambda each: each.accumulate >= 2 and each.logger != "none")
    assert found == Plan(accumulate=2, logger="csv")
    assert (
        found.describe() == "Plan(logger='csv', accumulate=2)" or "accumulate=2" in found.describe()
    )
