"""What a token, a sample, a step or an hour of full use costs: money of a run over its counts.

Takes what ``cost.py`` has charged. A ratio whose divisor is unknown or 0 is absent; money and
counts are always those of the same ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, localcontext
from typing import Literal, NamedTuple

from costlens.account.counts import steps_made, sum_count
from costlens.account.money import EXACT, NS_PER_HOUR, add
from costlens.core.records import RankRecord

__all__ = ["Money", "cost_per_effective_unit", "count_gpu_hours", "unit_costs"]

MIN_UTILIZATION = Decimal("0.01")

Basis = Literal["tokens", "slots"]


def cost_per_effective_unit(cost: Decimal, utilization: Decimal) -> Decimal:
    """Return the cost per fully used unit: ``cost / max(utilization, 0.01)``.

    Args:
        cost: Money.
        utilization: Share of the device in use, 0 to 1; the caller names which one it took.
    """
    with localcontext(EXACT):
        return cost / max(utilization, MIN_UTILIZATION)


class Money(NamedTuple):
    """Money of a run: ``total`` as it is told, ``owed`` before it was rounded.

    An hour's money is taken of the latter: of a short run the former has few digits.
    """

    total: Decimal
    owed: Decimal


def unit_costs(
    records: Sequence[RankRecord],
    money: Money,
    lost_steps: Mapping[int, int] | None,
    utilizations: Mapping[str, float | None],
    *,
    is_whole: bool,
) -> dict[str, Decimal | str | float]:
    """Return the ratios that are known, by the names of ``CostPart``.

    Args:
        records: The records that the money is of.
        money: Their money.
        lost_steps: Optimizer steps that did not survive, by attempt; None when unknown.
        utilizations: Shares of use that are known, by name; ``goodput`` is the one of productive
            hours, and the first that is known is the one of effective units.
        is_whole: Whether the money is that of every rank: steps are made by all together.
    """
    total = money.total
    ratios = _per_token(records, total, lost_steps)
    progress = [record.progress for record in records]
    samples = sum_count(progress, "samples")
    found = {"per_sample": _divide(total, Decimal(samples or 0))}
    if is_whole:
        made = sum(steps_made(records).values())
        found["per_step"] = _divide(total, Decimal(made))
        if lost_steps is not None:
            productive = Decimal(made - sum(lost_steps.values()))
            found["per_productive_step"] = _divide(total, productive)
    ratios.update({name: ratio for name, ratio in found.items() if ratio is not None})
    return ratios | _per_hour(records, money.owed, utilizations)


def count_gpu_hours(records: Iterable[RankRecord]) -> Decimal:
    """Return the hours of GPUs that were paid for, shares of one and idle ones included."""
    with localcontext(EXACT):
        hours = Decimal(0)
        for record in records:
            rank = record.rank
            idle = (rank.unowned_gpus or 0) if rank.local_rank == 0 else 0
            num_gpus = Decimal(rank.gpu_share or rank.num_gpus) + idle
            hours += num_gpus * record.total_ns / NS_PER_HOUR
        return hours


def _per_hour(
    records: Sequence[RankRecord], owed: Decimal, utilizations: Mapping[str, float | None]
) -> dict[str, Decimal | str | float]:
    hours = count_gpu_hours(records)
    known = {name: share for name, share in utilizations.items() if share is not None}
    per_hour = _divide(owed, hours)
    if per_hour is None:
        return {}
    ratios: dict[str, Decimal | str | float] = {"per_gpu_hour": per_hour}
    if "goodput" in known:
        share = Decimal(repr(known["goodput"]))
        ratios["per_effective_gpu_hour"] = cost_per_effective_unit(per_hour, share)
    if known:
        name, used = next(iter(known.items()))
        ratios["cost_per_effective_unit"] = cost_per_effective_unit(per_hour, Decimal(repr(used)))
        ratios["utilization"], ratios["utilization_name"] = used, name
    return ratios


def _per_token(
    records: Sequence[RankRecord], total: Decimal, lost_steps: Mapping[int, int] | None
) -> dict[str, Decimal | str | float]:
    basis = _token_basis(records)
    if basis is None:
        return {}
    tokens = add(Decimal(getattr(record.progress, basis) or 0) for record in records)
    productive = _productive_tokens(records, basis, lost_steps)
    with localcontext(EXACT):
        found = {
            "per_1k_tokens": _divide(total * 1000, tokens),
            "per_million_tokens": _divide(total * 1_000_000, tokens),
            "per_million_productive_tokens": None
            if productive is None
            else _divide(total * 1_000_000, productive),
        }
    known = {name: money for name, money in found.items() if money is not None}
    return {"token_basis": basis, **known}


def _divide(money: Decimal, count: Decimal) -> Decimal | None:
    with localcontext(EXACT):
        return money / count if count > 0 else None


def _token_basis(records: Sequence[RankRecord]) -> Basis | None:
    progress = [record.progress for record in records]
    if sum_count(progress, "tokens") is not None:
        return "tokens"
    return None if sum_count(progress, "slots") is None else "slots"


def _productive_tokens(
    records: Sequence[RankRecord], basis: Basis, lost_steps: Mapping[int, int] | None
) -> Decimal | None:
    if lost_steps is None:
        return None
    with localcontext(EXACT):
        total = Decimal(0)
        for record in records:
            tokens = Decimal(getattr(record.progress, basis) or 0)
            lost = lost_steps.get(record.attempt.number, 0)
            made = record.progress.optimizer_steps
            total += tokens * max(0, made - lost) / made if lost and made else tokens
    return total
