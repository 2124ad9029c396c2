"""Many runs added up: spend, success, waste and cost by outcome of each team, project or model.

Takes merged records and makes what ``costlens runs --group-by`` shows. A run counts whole;
currencies are never added, and what is unknown is counted as such, never as zero.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from decimal import Decimal

from pydantic import Field

from costlens.account.money import EXACT, format_money, format_ratio
from costlens.core.part import Part
from costlens.core.records import LABELS, Outcome
from costlens.core.run_record import CostPart, RunRecord

__all__ = ["GROUPINGS", "FleetGroup", "FleetSpend", "group_runs", "sum_runs"]

GROUPINGS = (*LABELS, "outcome")
"""What runs can be grouped by: their labels, and how they ended."""

_SUCCESSES = frozenset({Outcome.COMPLETED, Outcome.STOPPED_EARLY})


class FleetSpend(Part):
    """Money of a group of runs in one currency, as decimal strings."""

    total: str
    by_outcome: dict[str, str] = Field(description="The same by how each run ended.")
    per_run: str = Field(description="The total over the runs that have a cost in this currency.")
    waste: str | None = Field(
        None, description="What did not go into steps that survived, of the runs that know it."
    )


class FleetGroup(Part):
    """A group of runs."""

    group: str | None = Field(None, description="The label the runs share; null is none.")
    num_runs: int
    outcomes: dict[str, int] = Field(description="Runs by the outcome of their newest attempt.")
    success_rate: float | None = Field(
        None,
        description="Share (0 to 1) of the ended runs that completed or stopped early as planned.",
    )
    paid_s: float = Field(description="Paid seconds of all ranks.")
    goodput: float | None = Field(
        None, description="Share of paid time in steps that survived, over the runs that know it."
    )
    spend: dict[str, FleetSpend] = Field(description="Money by currency; never added up.")
    num_unpriced: int = Field(0, description="Runs of which no cost is known.")
    num_partial: int = Field(0, description="Runs of which a part of the cost is not known.")
    num_waste_unknown: int = Field(0, description="Priced runs whose waste is not known.")


def group_runs(runs: Iterable[RunRecord], grouping: str) -> list[FleetGroup]:
    """Return the runs by a label or by outcome, the costliest group first.

    Args:
        runs: Merged records.
        grouping: One of ``GROUPINGS``.
    """
    groups: defaultdict[str | None, list[RunRecord]] = defaultdict(list)
    for run in runs:
        groups[_key(run, grouping)].append(run)
    summed = [sum_runs(members, key) for key, members in groups.items()]
    return sorted(summed, key=lambda group: (-_largest(group), group.group or "\uffff"))


def sum_runs(runs: Iterable[RunRecord], group: str | None = None) -> FleetGroup:
    """Return the sums over runs.

    Args:
        runs: Merged records.
        group: What they are called together.
    """
    members = [*runs]
    outcomes = Counter(run.attempts[-1].outcome for run in members)
    num_ended = len(members) - outcomes[Outcome.RUNNING]
    num_good = sum(outcomes[outcome] for outcome in _SUCCESSES)
    known = [(run, run.goodput.productive) for run in members]
    judged = [(run, productive) for run, productive in known if productive is not None]
    judged_s = sum(run.time_s.get("total", 0.0) for run, _ in judged)
    productive_s = sum(productive.time_s for _, productive in judged)
    priced = [run for run in members if _totals(run.cost)]
    return FleetGroup(
        group=group,
        num_runs=len(members),
        outcomes={outcome.value: outcomes[outcome] for outcome in Outcome if outcomes[outcome]},
        success_rate=num_good / num_ended if num_ended else None,
        paid_s=sum(run.time_s.get("total", 0.0) for run in members),
        goodput=productive_s / judged_s if judged_s else None,
        spend=_spend(priced),
        num_unpriced=len(members) - len(priced),
        num_partial=sum(run.cost.is_partial for run in priced),
        num_waste_unknown=sum(_waste(run) is None for run in priced),
    )


def _key(run: RunRecord, grouping: str) -> str | None:
    if grouping == "outcome":
        return run.attempts[-1].outcome.value
    label = getattr(run.run, grouping)
    return None if label is None else str(label)


def _largest(group: FleetGroup) -> Decimal:
    return max((Decimal(spend.total) for spend in group.spend.values()), default=Decimal(-1))


def _totals(cost: CostPart) -> Mapping[str, str]:
    """Return the total of a run by currency; empty when unknown."""
    if cost.total is not None and cost.currency is not None:
        return {cost.currency: cost.total}
    return cost.by_currency


def _waste(run: RunRecord) -> Decimal | None:
    productive, total = run.goodput.productive, run.cost.total
    if productive is None or productive.money is None or total is None:
        return None
    return EXACT.subtract(Decimal(total), Decimal(productive.money))


def _spend(runs: Iterable[RunRecord]) -> dict[str, FleetSpend]:
    totals: defaultdict[str, Decimal] = defaultdict(Decimal)
    wastes: defaultdict[str, Decimal] = defaultdict(Decimal)
    by_outcome: defaultdict[str, defaultdict[str, Decimal]] = defaultdict(
        lambda: defaultdict(Decimal)
    )
    num_runs: Counter[str] = Counter()
    for run in runs:
        num_runs.update(_totals(run.cost).keys())
        waste, outcome = _waste(run), run.attempts[-1].outcome.value
        for currency, money in _totals(run.cost).items():
            totals[currency] = EXACT.add(totals[currency], Decimal(money))
            spent = by_outcome[currency]
            spent[outcome] = EXACT.add(spent[outcome], Decimal(money))
            if waste is not None:
                wastes[currency] = EXACT.add(wastes[currency], waste)
    return {
        currency: FleetSpend(
            total=format_money(total),
            per_run=format_ratio(EXACT.divide(total, Decimal(num_runs[currency]))),
            by_outcome={
                outcome.value: format_money(by_outcome[currency][outcome.value])
                for outcome in Outcome
                if outcome.value in by_outcome[currency]
            },
            waste=format_money(wastes[currency]) if currency in wastes else None,
        )
        for currency, total in sorted(totals.items())
    }
