"""Totals of a run for rank 0 while it runs: the ledger's sums without what only a report needs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from decimal import Decimal

from costlens.account.attempts import group_attempts, summarize_attempt
from costlens.account.cost import Charge, charge_rank, idle_device_ns
from costlens.account.counts import merge_progress, steps_made
from costlens.account.goodput import count_lost_steps, divide_time
from costlens.account.ledger import settle
from costlens.account.money import EXACT, add, format_money, format_ratio
from costlens.account.unit_costs import Money, unit_costs
from costlens.core.budget_records import RunTotalsPart
from costlens.core.clock import NS_PER_S
from costlens.core.records import RankRecord

__all__ = ["total_run"]

_RATIOS = {
    "token": ("per_million_tokens", 1_000_000),
    "productive_token": ("per_million_productive_tokens", 1_000_000),
    "sample": ("per_sample", 1),
    "step": ("per_step", 1),
    "productive_step": ("per_productive_step", 1),
    "gpu_hour": ("per_gpu_hour", 1),
    "effective_gpu_hour": ("per_effective_gpu_hour", 1),
}


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
        sums[charge.currency] = EXACT.add(sums[charge.currency], charge.total)
    goodput = divide_time(everyone, charges, attempts, lost_steps).share
    has_all = is_complete and all(a.num_ranks >= a.world_size for a in attempts)
    is_partial = bool(charges) and not (has_all and len(charges) == len(everyone))
    return RunTotalsPart(
        time_s=sum(r.total_ns + idle_device_ns(r) for r in everyone) / NS_PER_S,
        cost={currency: format_money(total) for currency, total in sorted(sums.items())},
        unit_cost=_unit_cost(charges, lost_steps, goodput, is_whole=not is_partial),
        is_partial=is_partial,
        goodput=goodput,
        productive_steps=progress.productive_steps,
        lost_steps=progress.lost_steps,
        tokens=progress.tokens,
        num_records=len(everyone),
    )


def _unit_cost(
    charges: Sequence[Charge],
    lost_steps: Mapping[int, int] | None,
    goodput: float | None,
    *,
    is_whole: bool,
) -> dict[str, str]:
    if len({charge.currency for charge in charges}) != 1:
        return {}
    ratios = unit_costs(
        [charge.record for charge in charges],
        Money(add(charge.total for charge in charges), add(charge.owed for charge in charges)),
        lost_steps,
        {"goodput": goodput},
        is_whole=is_whole,
    )
    found = {unit: (ratios.get(name), per) for unit, (name, per) in _RATIOS.items()}
    return {
        unit: format_ratio(EXACT.divide(ratio, Decimal(per)))
        for unit, (ratio, per) in found.items()
        if isinstance(ratio, Decimal)
    }
