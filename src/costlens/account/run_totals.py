"""Totals of a run for rank 0 while it runs: the ledger's sums without what only a report needs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from decimal import Context, Decimal

from costlens.account.attempts import group_attempts, summarize_attempt
from costlens.account.cost import charge_rank, format_money, idle_device_ns
from costlens.account.counts import merge_progress, steps_made
from costlens.account.goodput import count_lost_steps, divide_time
from costlens.account.ledger import settle
from costlens.core.budget_records import RunTotalsPart
from costlens.core.clock import NS_PER_S
from costlens.core.records import RankRecord

__all__ = ["total_run"]

_EXACT = Context(prec=60)


def total_run(
    records: Sequence[RankRecord], now: float, *, is_complete: bool = True
) -> RunTotalsPart:
    """Return the totals of a run.

    Args:
        records: Records of one run in any order, at least one.
        now: Unix time of the reader.
        is_complete: Whether every rank and attempt there has been has a record here.
    """
    everyone, _ = settle(records, now)
    attempts = [summarize_attempt(group) for group in group_attempts(everyone).values()]
    lost_steps = count_lost_steps(attempts, steps_made(everyone))
    charges = [charge for record in everyone if (charge := charge_rank(record)) is not None]
    progress = merge_progress(everyone, lost_steps)
    sums: defaultdict[str, Decimal] = defaultdict(Decimal)
    for charge in charges:
        sums[charge.currency] = _EXACT.add(sums[charge.currency], charge.total)
    has_all = is_complete and all(a.num_ranks >= a.world_size for a in attempts)
    return RunTotalsPart(
        time_s=sum(r.total_ns + idle_device_ns(r) for r in everyone) / NS_PER_S,
        cost={currency: format_money(total) for currency, total in sorted(sums.items())},
        is_partial=bool(charges) and not (has_all and len(charges) == len(everyone)),
        goodput=divide_time(everyone, charges, attempts, lost_steps).share,
        productive_steps=progress.productive_steps,
        lost_steps=progress.lost_steps,
        tokens=progress.tokens,
        num_records=len(everyone),
    )
