"""Watches a run's budget: tells at 50, 80 and 100 % once each, and knows when to stop.

Runs on rank 0's pipeline thread; ``spending.py`` brings the totals and asks the ranks to stop.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from costlens.account.budget import compare_budget
from costlens.core.budget_records import BudgetAction, BudgetPart, RunTotalsPart
from costlens.core.log import Logger

__all__ = ["THRESHOLDS", "BudgetWatch"]

THRESHOLDS = (0.5, 0.8, 1.0)
"""Shares of a budget at which a run says so."""


class BudgetWatch:
    """The budget of one run.

    Args:
        amount: Money, > 0.
        currency: Its ISO 4217 code.
        action: What happens when it is spent.
        logger: The log of the run.
    """

    def __init__(
        self, amount: Decimal, currency: str, action: BudgetAction, logger: Logger
    ) -> None:
        self._logger = logger
        self._has_told_unknown = False
        self.part = BudgetPart(amount=f"{amount:f}", currency=currency, action=action)

    @property
    def is_spent(self) -> bool:
        """Return whether all of it is spent, as far as is known."""
        return self.part.share is not None and self.part.share >= 1

    def recall(self, earlier: Iterable[BudgetPart | None]) -> None:
        """Remember what earlier attempts have told of the same budget."""
        told = set(self.part.told)
        for part in earlier:
            if part is not None and self._is_same(part):
                told.update(part.told)
        self.part = self.part.model_copy(update={"told": sorted(told)})

    def _is_same(self, part: BudgetPart) -> bool:
        return (
            Decimal(part.amount) == Decimal(self.part.amount)
            and part.currency == self.part.currency
        )

    def look(self, totals: RunTotalsPart) -> BudgetPart:
        """Take what the run has cost, tell what has to be told, and return the budget."""
        part = self.part = compare_budget(self.part, totals.cost, is_partial=totals.is_partial)
        if part.share is None:
            self._tell_unknown()
            return part
        passed = [limit for limit in THRESHOLDS if part.share >= limit]
        new = [limit for limit in passed if limit not in part.told]
        if new:
            self.part = part.model_copy(update={"told": sorted({*part.told, *new})})
            self._tell(self.part, max(new))
        return self.part

    def _tell(self, part: BudgetPart, limit: float) -> None:
        tell = self._logger.error if limit >= 1 else self._logger.warning
        end = "; training stops" if limit >= 1 and part.action == "stop" else ""
        least = "at least " if part.is_partial else ""
        tell(
            "costlens.budget",
            budget_share=part.share,
            budget_spent=part.spent,
            budget_amount=part.amount,
            currency=part.currency,
            message=f"{least}{100 * limit:.0f} % of the budget is spent: {_show(part.spent)} of "
            f"{part.amount} {part.currency} over all attempts{end}",
        )

    def _tell_unknown(self) -> None:
        if not self._has_told_unknown:
            self._has_told_unknown = True
            self._logger.warning(
                "costlens.budget.unknown",
                message=f"a budget of {self.part.amount} {self.part.currency} is set and the cost "
                f"in {self.part.currency} is not known, so it cannot be watched; set a price",
            )


def _show(money: str | None) -> str:
    """Return money for people: two decimals, or three digits of a small sum."""
    amount = Decimal(money or 0)
    return f"{amount:.{max(2, 2 - amount.adjusted())}f}"
