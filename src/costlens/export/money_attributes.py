"""What a run has come to, as attributes of a period's span: goodput, money, budget and MFU.

The totals of the run are rank 0's to tell, in the words of the metrics they stand beside.
"""

from __future__ import annotations

from decimal import Decimal

from costlens.account.mfu import rank_mfu
from costlens.core.records import RankRecord

__all__ = ["money_attributes"]


def money_attributes(record: RankRecord) -> dict[str, float | None]:
    """Return what the run has come to at the end of a period; None where it is not known.

    The money of a run that was paid in several currencies is left out: a span has room for one.
    """
    totals, budget = record.run_totals, record.budget
    money = list(totals.cost.values()) if totals is not None else []
    return {
        "costlens.mfu.ratio": rank_mfu(record).ratio,
        "costlens.run.cost": float(Decimal(money[0])) if len(money) == 1 else None,
        "costlens.run.goodput.ratio": None if totals is None else totals.goodput,
        "costlens.budget.spent.ratio": None if budget is None else budget.share,
    }
