"""The page of the metric catalogue on the run as a whole: gauges that rank 0 alone exports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal

from costlens.core.budget_records import UNITS, BudgetPart, RunTotalsPart
from costlens.core.snapshot import Snapshot
from costlens.export.metric import Metric
from costlens.export.readings import Point, Read, each, one

__all__ = ["RUN_METRICS"]

_CURRENCY: Mapping[str, tuple[str, ...]] = {"costlens.cost.currency": ()}
# A run that was moved between regions or providers may have been paid in several.
_MAX_CURRENCIES = {"costlens.cost.currency": 4}


def _of_run(get: Callable[[RunTotalsPart], float | None]) -> Read:
    def read(snapshot: Snapshot) -> float | None:
        totals = snapshot.record.run_totals
        return None if totals is None else get(totals)

    return one(read)


def _run_steps(snapshot: Snapshot) -> Mapping[str, float | None]:
    totals = snapshot.record.run_totals
    if totals is None:
        return {}
    return {"productive": totals.productive_steps, "lost": totals.lost_steps}


def _run_cost(snapshot: Snapshot) -> Iterable[Point]:
    totals = snapshot.record.run_totals
    cost = {} if totals is None else totals.cost
    first = sorted(cost)[: _MAX_CURRENCIES["costlens.cost.currency"]]
    return [({"costlens.cost.currency": name}, float(Decimal(cost[name]))) for name in first]


def _unit_cost(snapshot: Snapshot) -> Iterable[Point]:
    totals = snapshot.record.run_totals
    if totals is None or len(totals.cost) != 1:
        return []
    (currency,) = totals.cost
    return [
        ({"costlens.cost.per": unit, "costlens.cost.currency": currency}, float(Decimal(money)))
        for unit, money in totals.unit_cost.items()
        if unit in UNITS
    ]


def _of_budget(get: Callable[[BudgetPart], float | None]) -> Read:
    def read(snapshot: Snapshot) -> Iterable[Point]:
        budget = snapshot.record.budget
        value = None if budget is None else get(budget)
        if budget is None or value is None:
            return []
        return [({"costlens.cost.currency": budget.currency}, value)]

    return read


RUN_METRICS: tuple[Metric, ...] = (
    Metric(
        "costlens.run.time",
        "gauge",
        "s",
        "Paid time of the run over all attempts and ranks, as rank 0 knows it.",
        _of_run(lambda totals: totals.time_s),
    ),
    Metric(
        "costlens.run.cost",
        "gauge",
        "{currency}",
        "Money of the run over all attempts and ranks, as rank 0 knows it; currencies must not be "
        "added.",
        _run_cost,
        _CURRENCY,
        num_own=_MAX_CURRENCIES,
    ),
    Metric(
        "costlens.run.unit.cost",
        "gauge",
        "{currency}",
        "Money of the run over all attempts and ranks per one of what the attribute names: a "
        "token, a sample, an optimizer step, a paid or an effective hour of a GPU.",
        _unit_cost,
        {"costlens.cost.per": UNITS, **_CURRENCY},
    ),
    Metric(
        "costlens.run.goodput.ratio",
        "gauge",
        "1",
        "Share of the run's paid time in steps that survived, over all attempts and ranks.",
        _of_run(lambda totals: totals.goodput),
    ),
    Metric(
        "costlens.run.steps",
        "gauge",
        "{step}",
        "Optimizer steps of the run over all attempts: those that survived, and those that were "
        "lost.",
        each("costlens.step.fate", _run_steps),
        {"costlens.step.fate": ("productive", "lost")},
    ),
    Metric(
        "costlens.run.tokens",
        "gauge",
        "{token}",
        "Non-padding tokens of the run over all attempts and ranks.",
        _of_run(lambda totals: totals.tokens),
    ),
    Metric(
        "costlens.budget.amount",
        "gauge",
        "{currency}",
        "Money that the run may cost over all attempts and ranks.",
        _of_budget(lambda budget: float(Decimal(budget.amount))),
        _CURRENCY,
    ),
    Metric(
        "costlens.budget.spent.ratio",
        "gauge",
        "1",
        "Share of the budget that is spent; above 1 where it was exceeded.",
        _of_budget(lambda budget: budget.share),
        _CURRENCY,
    ),
)
"""Totals over attempts come from one rank, as gauges: counters start anew with each attempt."""
