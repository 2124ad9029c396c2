"""How much of a budget is spent: money in its own currency only, for currencies are never added."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Context, Decimal

from costlens.core.budget_records import BudgetPart
from costlens.core.records import RankRecord
from costlens.core.run_record import CostPart

__all__ = ["compare_budget", "merge_budget"]

_EXACT = Context(prec=60)


def compare_budget(budget: BudgetPart, cost: Mapping[str, str], *, is_partial: bool) -> BudgetPart:
    """Return a budget with what is spent of it.

    Args:
        budget: The budget.
        cost: Money of the run by currency; empty when unknown.
        is_partial: Whether a part of the cost is not known.
    """
    spent = cost.get(budget.currency)
    share = None
    if spent is not None:
        share = float(_EXACT.divide(Decimal(spent), Decimal(budget.amount)))
    has_more = is_partial or any(currency != budget.currency for currency in cost)
    return budget.model_copy(update={"spent": spent, "share": share, "is_partial": has_more})


def merge_budget(newest: RankRecord, cost: CostPart) -> BudgetPart | None:
    """Return the budget of a run with what the ledger says is spent; None without a budget.

    Args:
        newest: Rank 0's record of the newest attempt.
        cost: The money of the run.
    """
    if newest.budget is None:
        return None
    totals = cost.by_currency
    if cost.total is not None and cost.currency is not None:
        totals = {cost.currency: cost.total}
    return compare_budget(newest.budget, totals, is_partial=cost.is_partial)
