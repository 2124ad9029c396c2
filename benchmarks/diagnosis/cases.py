"""The runs that are judged: each cause alone, two at once, and none; and what is true of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.diagnosis.engine import simulate
from benchmarks.diagnosis.healthy import draw_healthy
from benchmarks.diagnosis.job import Job
from benchmarks.diagnosis.plants import PLANTS, Plant
from benchmarks.diagnosis.trace import Trace
from benchmarks.diagnosis.truth import Saving, compare, make_bill

__all__ = ["Case", "Plan", "make_case", "plan_cases"]

_LEAST_SAVING = 0.08
_SECOND_LOSSES = (0.08, 0.2)
_LEAST_SECOND = 0.03
_DOMINANCE = 1.6
_MAX_TRIES = 60
_TRIES_A_PAIR = 5
_LOSSES = [plant for plant in PLANTS if plant.is_loss and plant.area != "job"]


@dataclass(frozen=True)
class Plan:
    """What a case is to be.

    Args:
        seed: Of everything in it.
        plants: What is planted, the dominant one first; empty for a sound job.
        max_ranks: Most ranks that it has.
    """

    seed: int
    plants: tuple[Plant, ...]
    max_ranks: int = 64


@dataclass(frozen=True)
class Case:
    """A run with what is true of it.

    Args:
        plan: What it was to be.
        job: The job.
        traces: What its ranks did.
        savings: What mending each cause saves, the dominant one first; None for a danger.
    """

    plan: Plan
    job: Job
    traces: list[Trace]
    savings: dict[str, Saving | None]

    @property
    def cause(self) -> str | None:
        """Return the dominant cause; None for a sound job."""
        return next(iter(self.savings), None)


def plan_cases(
    num_sick: int, num_healthy: int, first_seed: int = 0, max_ranks: int = 64
) -> list[Plan]:
    """Return the plans: three of four sick runs have one cause, in turn, the others two.

    Args:
        num_sick: Runs with something to mend.
        num_healthy: Runs without.
        first_seed: The seed of the first; they count up.
        max_ranks: Most ranks that one has, >= 4.
    """
    rng = np.random.default_rng((first_seed, 42))
    pairs = _draw_pairs(rng)
    plans, singles = [], 0
    for number in range(num_sick):
        if number % 4 == 3:
            plants = next(pairs)
        else:
            plants = (PLANTS[singles % len(PLANTS)],)
            singles += 1
        plans.append(Plan(first_seed + number, plants, max_ranks))
    healthy = range(first_seed + num_sick, first_seed + num_sick + num_healthy)
    return [*plans, *(Plan(seed, (), max_ranks) for seed in healthy)]


def _draw_pairs(rng: np.random.Generator) -> Iterator[tuple[Plant, Plant]]:
    turn = 0
    while True:
        first = _LOSSES[turn % len(_LOSSES)]
        turn += 1
        if first.area != "ranks":
            yield first, _draw_second(first, rng)


def _draw_second(first: Plant, rng: np.random.Generator) -> Plant:
    others = [plant for plant in _LOSSES if _fit(first, plant)]
    return others[int(rng.integers(len(others)))]


def _fit(first: Plant, second: Plant) -> bool:
    """Return whether two causes can be in one run without being the same lost time."""
    if first.area == second.area:
        return False
    needs = (first.needs, second.needs)
    devices = {need["device"] for need in needs if "device" in need}
    # A cause that makes one rank slow hides what slows the others down.
    return len(devices) < 2 and "ranks" not in (first.area, second.area)


def make_case(plan: Plan) -> Case:
    """Return a case as planned; drawn again until the planted causes do what they are to do.

    Raises:
        ValueError: If they never do.
    """
    for turn in range(_MAX_TRIES):
        rng = np.random.default_rng((plan.seed, turn))
        if not plan.plants:
            job = draw_healthy(rng, plan.seed, {"max_ranks": plan.max_ranks})
            return Case(plan, job, simulate(job), {})
        if turn and turn % _TRIES_A_PAIR == 0 and len(plan.plants) > 1:
            plan = replace(plan, plants=(plan.plants[0], _draw_second(plan.plants[0], rng)))
        case = _try_case(plan, rng)
        if case is not None:
            return case
    names = " and ".join(plant.cause for plant in plan.plants)
    raise ValueError(f"{_MAX_TRIES} draws of {names} (seed {plan.seed}) had no effect to speak of")


def _try_case(plan: Plan, rng: np.random.Generator) -> Case | None:
    needs = {name: value for plant in plan.plants for name, value in plant.needs.items()}
    needs["max_ranks"] = min(plan.max_ranks, needs.get("max_ranks", plan.max_ranks))
    base = draw_healthy(rng, plan.seed, needs)
    base = replace(base, stop_at_s=None)
    broken = []
    for turn, plant in enumerate(plan.plants):
        loss = float(rng.uniform(*(_SECOND_LOSSES if turn else plant.losses)))
        sound, changes = plant.draw(base, rng, loss)
        base = replace(base, **sound)
        broken.append(changes)
    job = replace(base, **{name: value for each in broken for name, value in each.items()})
    traces = simulate(job)
    bill = make_bill(job, traces)
    savings: dict[str, Saving | None] = {}
    for turn, plant in enumerate(plan.plants):
        if not plant.is_loss:
            savings[plant.cause] = None
            continue
        others = [each for number, each in enumerate(broken) if number != turn]
        mended = replace(base, **{n: v for each in others for n, v in each.items()})
        # The same work, so that it comes by the same saves, evaluations and turns of epochs.
        num = round(len(traces[0].cuts) * job.batch_size / mended.batch_size)
        savings[plant.cause] = compare(bill, make_bill(mended, simulate(mended, num)))
    return Case(plan, job, traces, savings) if _is_clear(plan.plants, savings) else None


def _is_clear(plants: Sequence[Plant], savings: dict[str, Saving | None]) -> bool:
    whole = [saving.whole for saving in savings.values() if saving is not None]
    if not whole:
        return True
    if len(plants) == 1:
        return whole[0] >= _LEAST_SAVING
    return whole[1] >= _LEAST_SECOND and whole[0] >= max(_LEAST_SAVING, _DOMINANCE * whole[1])
