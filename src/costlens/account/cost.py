"""Money of a run: price × own device × paid time of every rank, added up exactly.

Takes the ranks' records with the prices frozen in them and makes the ``cost`` part of the merged
record. Amounts are Decimal, cut to 1e-9 (finer where that would leave less than three digits) so
that phases, attempts and total add up to the last digit; currencies are never added.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation, localcontext
from typing import Any

from costlens.account.energy_cost import price_energy
from costlens.account.money import (
    EXACT,
    NS_PER_HOUR,
    add,
    format_money,
    format_ratio,
    last_digit,
)
from costlens.account.unit_costs import Money, unit_costs
from costlens.core.phases import NAMES, Phase
from costlens.core.price_records import PricePart
from costlens.core.records import RankPart, RankRecord
from costlens.core.run_record import CostPart

__all__ = [
    "NS_PER_HOUR",
    "Charge",
    "charge_rank",
    "format_money",
    "idle_device_ns",
    "price_run",
]

_IDLE_DEVICE = Phase.IDLE_DEVICE.name.lower()
_NO_PRICE = "no price in the record"


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
        return add((self.own_rate_per_hour, self.idle_rate_per_hour))

    @property
    def total(self) -> Decimal:
        """Return the money of all phases together."""
        return add(self.by_phase.values())

    @property
    def owed(self) -> Decimal:
        """Return the money of all phases together before it is rounded."""
        spent_ns = sum(ns for ns in self.record.time_ns.values() if ns > 0)
        with localcontext(EXACT):
            own = self.own_rate_per_hour * spent_ns
            return (own + self.idle_rate_per_hour * self.record.total_ns) / NS_PER_HOUR

    def until(self, elapsed_ns: int) -> Decimal:
        """Return the money of the first ``elapsed_ns`` paid nanoseconds."""
        with localcontext(EXACT):
            owed = self.rate_per_hour * elapsed_ns / NS_PER_HOUR
            return owed.quantize(last_digit(owed))


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
    with localcontext(EXACT):
        idle = idle_rate * record.total_ns / NS_PER_HOUR
        grain = last_digit(own_rate * sum(spent.values()) / NS_PER_HOUR + idle)
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


def idle_device_ns(record: RankRecord) -> int:
    """Return the paid nanoseconds, summed over devices, of devices that no rank drives.

    The node's local rank 0 books them for as long as it runs. They are no time of the rank: its own
    phases add up without them. Where the node is paid as a whole, they are paid for with it.
    """
    is_whole = record.price is not None and record.price.unit == "node"
    if is_whole or record.rank.local_rank != 0:
        return 0
    return (record.rank.unowned_gpus or 0) * record.total_ns


def price_run(
    records: Sequence[RankRecord],
    lost_steps: Mapping[int, int] | None,
    utilizations: Mapping[str, float | None] | None = None,
    *,
    is_complete: bool = True,
) -> CostPart:
    """Return the money of a run.

    Ratios are taken over the ranks whose price is known, money and tokens alike. Productive
    tokens are an attempt's tokens less the share of its optimizer steps that were done again.

    Args:
        records: One record per attempt and rank.
        lost_steps: Optimizer steps done again later, by attempt; None when unknown.
        utilizations: Shares of use by name, ``goodput`` among them; see ``unit_costs``.
        is_complete: Whether every rank that took part has a record here.
    """
    charged = [(record, charge_rank(record)) for record in records]
    charges = [charge for _, charge in charged if charge is not None]
    unpriced = [record for record, charge in charged if charge is None]
    part = CostPart(
        unknown=_explain_unknown(unpriced, len(records)),
        is_partial=bool(charges) and (bool(unpriced) or not is_complete),
        energy=price_energy(records),
        sources=sorted({_tell_source(c.record.price) for c in charges if c.record.price}),
    )
    if not charges:
        return part
    if len({charge.currency for charge in charges}) > 1:
        return part.model_copy(update=_mixed_totals(charges, part.unknown))
    ratios = unit_costs(
        [charge.record for charge in charges],
        Money(add(charge.total for charge in charges), add(charge.owed for charge in charges)),
        lost_steps,
        utilizations or {},
        is_whole=not part.is_partial,
    )
    totals = _totals(charges) | {
        name: format_ratio(value) if isinstance(value, Decimal) else value
        for name, value in ratios.items()
    }
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
        "total": format_money(add(charge.total for charge in charges)),
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
        with localcontext(EXACT):
            amount = Decimal(price.amount) * (1 - Decimal(price.discount or 0))
            # A node's price pays for all of its devices already.
            books_idle = price.unit == "gpu" and rank.local_rank == 0
            idle = amount * (rank.unowned_gpus or 0) if books_idle else Decimal(0)
            own = amount * Decimal(price.share)
    except InvalidOperation:
        return None
    return (own, idle) if own.is_finite() and idle.is_finite() else None


def _phase_order(name: str) -> tuple[int, str]:
    return (NAMES.index(name) if name in NAMES else len(NAMES), name)


def _sum_by(pairs: Iterable[tuple[str, Decimal]], order: Callable[[str], Any]) -> dict[str, str]:
    sums: defaultdict[str, Decimal] = defaultdict(Decimal)
    with localcontext(EXACT):
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
    return format_ratio(add(rates))
