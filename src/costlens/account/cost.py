"""Money of a run: price × own device × paid time of every rank, added up exactly.

Takes the ranks' records with the prices frozen in them and makes the ``cost`` part of the merged
record. Amounts are Decimal, cut to 1e-9 (finer where that would leave less than three digits) so
that phases, attempts and total add up to the last digit; currencies are never added.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, InvalidOperation, localcontext
from typing import Any, Literal

from costlens.account.counts import sum_count
from costlens.core.phases import NAMES, Phase
from costlens.core.records import PricePart, RankPart, RankRecord
from costlens.core.run_record import CostPart

__all__ = ["Charge", "charge_rank", "cost_per_effective_unit", "format_money", "price_run"]

NS_PER_HOUR = 3_600_000_000_000
MIN_UTILIZATION = Decimal("0.01")

_IDLE_DEVICE = Phase.IDLE_DEVICE.name.lower()
_NO_PRICE = "no price in the record"
_GRAIN = Decimal("1e-9")
_RATIO_GRAIN = Decimal("1e-12")
_MIN_DIGITS = 3
# The host application may have changed the process's decimal context.
_EXACT = Context(prec=60)

Basis = Literal["tokens", "slots"]


@dataclass(frozen=True, slots=True)
class Charge:
    """What one rank cost in one attempt.

    Args:
        record: The record it was made from.
        currency: ISO 4217 code.
        own_rate_per_hour: Money per hour of what the rank drives.
        idle_rate_per_hour: Money per hour of the node's devices that no rank drives, where this
            rank books them.
        by_phase: Money per phase, multiples of the total's last digit.
    """

    record: RankRecord
    currency: str
    own_rate_per_hour: Decimal
    idle_rate_per_hour: Decimal
    by_phase: dict[str, Decimal]

    @property
    def rate_per_hour(self) -> Decimal:
        """Return the money per hour of all that is booked on this rank."""
        return _add((self.own_rate_per_hour, self.idle_rate_per_hour))

    @property
    def total(self) -> Decimal:
        """Return the money of all phases together."""
        return _add(self.by_phase.values())

    def until(self, elapsed_ns: int) -> Decimal:
        """Return the money of the first ``elapsed_ns`` paid nanoseconds."""
        with localcontext(_EXACT):
            owed = self.rate_per_hour * elapsed_ns / NS_PER_HOUR
            return owed.quantize(_grain(owed, _GRAIN))


def format_money(amount: Decimal) -> str:
    """Return a plain decimal string with at least two decimals: ``5.00``, never ``1E-7``."""
    whole, _, decimals = f"{amount:f}".partition(".")
    return f"{whole}.{decimals.rstrip('0').ljust(2, '0')}"


def cost_per_effective_unit(cost: Decimal, utilization: Decimal) -> Decimal:
    """Return the cost per fully used unit: ``cost / max(utilization, 0.01)``.

    Args:
        cost: Money.
        utilization: Share of the device in use, 0 to 1; the caller names which one it took.
    """
    with localcontext(_EXACT):
        return cost / max(utilization, MIN_UTILIZATION)


def charge_rank(record: RankRecord) -> Charge | None:
    """Return what the record's time costs, or None when it carries no usable price.

    The total is the exact product rounded to 1e-9, or to three digits where it is tiny; phases get
    differences of rounded running sums, so that they add up to it. Devices that no rank drives cost
    what a driven one does for as long as the rank that books them; they are ``idle_device``.
    """
    rates = None if record.price is None else _rates_per_hour(record.price, record.rank)
    if record.price is None or rates is None:
        return None
    own_rate, idle_rate = rates
    by_phase: dict[str, Decimal] = {}
    spent = {name: ns for name, ns in record.time_ns.items() if ns > 0}
    with localcontext(_EXACT):
        idle = idle_rate * record.total_ns / NS_PER_HOUR
        grain = _grain(own_rate * sum(spent.values()) / NS_PER_HOUR + idle, _GRAIN)
        elapsed_ns, charged = 0, Decimal(0)
        for name in sorted(spent, key=_phase_order):
            elapsed_ns += spent[name]
            owed = (own_rate * elapsed_ns / NS_PER_HOUR).quantize(grain)
            by_phase[name] = owed - charged
            charged = owed
        if idle > 0:
            owed = (own_rate * elapsed_ns / NS_PER_HOUR + idle).quantize(grain)
            by_phase[_IDLE_DEVICE] = by_phase.get(_IDLE_DEVICE, Decimal(0)) + owed - charged
    return Charge(record, record.price.currency, own_rate, idle_rate, by_phase)


def price_run(
    records: Sequence[RankRecord],
    lost_steps: Mapping[int, int] | None,
    *,
    is_complete: bool = True,
) -> CostPart:
    """Return the money of a run.

    Ratios are taken over the ranks whose price is known, money and tokens alike. Productive
    tokens are an attempt's tokens less the share of its optimizer steps that were done again.

    Args:
        records: One record per attempt and rank.
        lost_steps: Optimizer steps done again later, by attempt; None when unknown.
        is_complete: Whether every rank that took part has a record here.
    """
    charged = [(record, charge_rank(record)) for record in records]
    charges = [charge for _, charge in charged if charge is not None]
    unpriced = [record for record, charge in charged if charge is None]
    part = CostPart(
        unknown=_explain_unknown(unpriced, len(records)),
        is_partial=bool(charges) and (bool(unpriced) or not is_complete),
        sources=sorted({_tell_source(c.record.price) for c in charges if c.record.price}),
    )
    if not charges:
        return part
    if len({charge.currency for charge in charges}) > 1:
        return part.model_copy(update=_mixed_totals(charges, part.unknown))
    totals = _totals(charges) | _ratios(charges, lost_steps)
    return part.model_copy(update={**totals, "rate_per_hour": _newest_rate(records, charges)})


def _tell_source(price: PricePart) -> str:
    since = f"since {price.since}" if price.since else None
    less = f"less {price.discount} of it" if price.discount else None
    return ", ".join(
        part for part in (price.source, price.entry, since, price.entry_source, less) if part
    )


def _totals(charges: Sequence[Charge]) -> dict[str, object]:
    by_phase = ((name, money) for c in charges for name, money in c.by_phase.items())
    return {
        "currency": charges[0].currency,
        "total": format_money(_add(charge.total for charge in charges)),
        "by_phase": _sum_by(by_phase, _phase_order),
        "by_attempt": _sum_by(((str(c.record.attempt.number), c.total) for c in charges), int),
        "by_rank": _sum_by(((str(c.record.rank.rank), c.total) for c in charges), int),
    }


def _mixed_totals(charges: Sequence[Charge], unknown: str | None) -> dict[str, object]:
    by_currency = _sum_by(((c.currency, c.total) for c in charges), str)
    mixed = f"prices in {' and '.join(by_currency)} are not added"
    return {
        "by_currency": by_currency,
        "unknown": f"{mixed}; {unknown}" if unknown else mixed,
    }


def _rates_per_hour(price: PricePart, rank: RankPart) -> tuple[Decimal, Decimal] | None:
    """Return the money per hour of what a rank drives and of what no rank of its node does."""
    try:
        with localcontext(_EXACT):
            amount = Decimal(price.amount) * (1 - Decimal(price.discount or 0))
            # A node's price pays for all of its devices already.
            books_idle = price.unit == "gpu" and rank.local_rank == 0
            idle = amount * (rank.unowned_gpus or 0) if books_idle else Decimal(0)
            own = amount * Decimal(price.share)
    except InvalidOperation:
        return None
    return (own, idle) if own.is_finite() and idle.is_finite() else None


def _grain(amount: Decimal, usual: Decimal) -> Decimal:
    """Return the last digit that an amount keeps: what is tiny is not nothing."""
    if amount == 0:
        return usual
    return min(usual, Decimal(1).scaleb(amount.adjusted() + 1 - _MIN_DIGITS))


def _phase_order(name: str) -> tuple[int, str]:
    return (NAMES.index(name) if name in NAMES else len(NAMES), name)


def _add(amounts: Iterable[Decimal]) -> Decimal:
    with localcontext(_EXACT):
        return sum(amounts, Decimal(0))


def _sum_by(pairs: Iterable[tuple[str, Decimal]], order: Callable[[str], Any]) -> dict[str, str]:
    sums: defaultdict[str, Decimal] = defaultdict(Decimal)
    with localcontext(_EXACT):
        for key, money in pairs:
            sums[key] += money
    return {
        key: format_money(money) for key, money in sorted(sums.items(), key=lambda kv: order(kv[0]))
    }


def _explain_unknown(unpriced: Sequence[RankRecord], num_records: int) -> str | None:
    if not unpriced:
        return None
    reasons = Counter(record.price_unknown or _NO_PRICE for record in unpriced)
    hint = min(reasons, key=lambda reason: (-reasons[reason], reason))
    if len(unpriced) == num_records:
        return hint
    return f"{len(unpriced)} of {num_records} rank records have no price: {hint}"


def _newest_rate(records: Sequence[RankRecord], charges: Sequence[Charge]) -> str | None:
    newest = max(record.attempt.number for record in records)
    rates = [c.rate_per_hour for c in charges if c.record.attempt.number == newest]
    if len(rates) < sum(record.attempt.number == newest for record in records):
        return None
    return _format_ratio(_add(rates))


def _format_ratio(amount: Decimal) -> str:
    with localcontext(_EXACT):
        return format_money(amount.quantize(_grain(amount, _RATIO_GRAIN)))


def _ratios(charges: Sequence[Charge], lost_steps: Mapping[int, int] | None) -> dict[str, object]:
    records = [charge.record for charge in charges]
    basis = _token_basis(records)
    if basis is None:
        return {}
    total = _add(charge.total for charge in charges)

    def per(num_tokens: Decimal, unit: int) -> str | None:
        if num_tokens <= 0:
            return None
        with localcontext(_EXACT):
            return _format_ratio(total * unit / num_tokens)

    tokens = _add(Decimal(getattr(record.progress, basis) or 0) for record in records)
    productive = _productive_tokens(records, basis, lost_steps)
    return {
        "token_basis": basis,
        "per_1k_tokens": per(tokens, 1000),
        "per_million_tokens": per(tokens, 1_000_000),
        "per_million_productive_tokens": None if productive is None else per(productive, 1_000_000),
    }


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
    with localcontext(_EXACT):
        total = Decimal(0)
        for record in records:
            tokens = Decimal(getattr(record.progress, basis) or 0)
            lost = lost_steps.get(record.attempt.number, 0)
            made = record.progress.optimizer_steps
            total += tokens * max(0, made - lost) / made if lost and made else tokens
    return total
