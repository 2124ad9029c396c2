"""The ledger as rows of FOCUS, the FinOps Open Cost and Usage Specification, version 1.2.

One row per attempt, rank and hour (UTC) of paid time. The hours of a rank are differences of a
rounded running sum, so rows add up to what the ledger says to the last digit; a rank without a
price has no row, for unknown is not zero. Pure; ``costlens export`` writes the rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from decimal import Context, Decimal
from typing import Literal

from costlens.account.attempts import paid_since
from costlens.account.cost import Charge, idle_device_ns
from costlens.core.clock import NS_PER_S
from costlens.core.records import RankRecord

__all__ = ["COLUMNS", "Account", "Cell", "make_rows"]

Kind = Literal["text", "decimal", "time"]
Cell = str | Decimal | datetime | None

COLUMNS: Mapping[str, Kind] = {
    "AvailabilityZone": "text",
    "BilledCost": "decimal",
    "BillingAccountId": "text",
    "BillingAccountName": "text",
    "BillingCurrency": "text",
    "BillingPeriodEnd": "time",
    "BillingPeriodStart": "time",
    "ChargeCategory": "text",
    "ChargeClass": "text",
    "ChargeDescription": "text",
    "ChargeFrequency": "text",
    "ChargePeriodEnd": "time",
    "ChargePeriodStart": "time",
    "CommitmentDiscountCategory": "text",
    "CommitmentDiscountId": "text",
    "CommitmentDiscountName": "text",
    "CommitmentDiscountStatus": "text",
    "CommitmentDiscountType": "text",
    "ConsumedQuantity": "decimal",
    "ConsumedUnit": "text",
    "ContractedCost": "decimal",
    "ContractedUnitPrice": "decimal",
    "EffectiveCost": "decimal",
    "InvoiceIssuerName": "text",
    "ListCost": "decimal",
    "ListUnitPrice": "decimal",
    "PricingCategory": "text",
    "PricingQuantity": "decimal",
    "PricingUnit": "text",
    "ProviderName": "text",
    "PublisherName": "text",
    "RegionId": "text",
    "RegionName": "text",
    "ResourceId": "text",
    "ResourceName": "text",
    "ResourceType": "text",
    "ServiceCategory": "text",
    "ServiceName": "text",
    "SkuId": "text",
    "SkuPriceId": "text",
    "SubAccountId": "text",
    "SubAccountName": "text",
    "Tags": "text",
}
"""What a row has: all columns of version 1.0, and with them the mandatory ones of 1.2."""

_EXACT = Context(prec=60)
_HOUR = timedelta(hours=1)
_NS_PER_HOUR = 3_600 * NS_PER_S
_COST_GRAIN = Decimal("1e-9")
_QUANTITY_GRAIN = Decimal("1e-15")
_UNITS = {"gpu": "GPU-Hours", "node": "Node-Hours"}


@dataclass(frozen=True, slots=True)
class Account:
    """Who is billed, and by whom: what no record knows.

    Args:
        account: The billing account.
        provider: Whose resources they are; None takes what a record tells.
    """

    account: str = "costlens"
    provider: str | None = None


def make_rows(
    charges: Iterable[Charge], account: Account, since: float | None = None
) -> Iterator[dict[str, Cell]]:
    """Yield the rows of a run's charges: by attempt and rank, and the hours of each in order.

    Args:
        charges: What the ranks cost, one per attempt and rank.
        account: Who is billed.
        since: Unix time; hours that ended by then are left out.
    """
    for charge in charges:
        fixed = _fixed_cells(charge, account)
        for start, end, paid_ns, cost in _hours(charge):
            if since is None or end.timestamp() > since:
                yield (
                    dict.fromkeys(COLUMNS)
                    | fixed
                    | _costs(charge, paid_ns, cost)
                    | {
                        "BillingPeriodStart": _month(start),
                        "BillingPeriodEnd": _month(_month(start) + timedelta(days=32)),
                        "ChargePeriodStart": start,
                        "ChargePeriodEnd": end,
                    }
                )


def _hours(charge: Charge) -> Iterator[tuple[datetime, datetime, int, Decimal]]:
    """Yield start, end, paid nanoseconds and money of every hour that a rank was paid in."""
    total, total_ns = charge.total, sum(charge.record.time_ns.values())
    began = _moment(paid_since(charge.record))
    # Microseconds carry a time; the nanoseconds of the record carry the money.
    end, done_ns, done = began, 0, Decimal(0)
    while done_ns < total_ns:
        start = end
        hour_end = start.replace(minute=0, second=0, microsecond=0) + _HOUR
        until_ns = min(total_ns, (hour_end - began) // timedelta(microseconds=1) * 1000)
        end = began + timedelta(microseconds=-(-until_ns // 1000))
        owed = _EXACT.divide(_EXACT.multiply(total, Decimal(until_ns)), Decimal(total_ns))
        owed = owed.quantize(total, context=_EXACT)
        yield start, end, until_ns - done_ns, _EXACT.subtract(owed, done)
        done_ns, done = until_ns, owed


def _costs(charge: Charge, paid_ns: int, cost: Decimal) -> dict[str, Cell]:
    price = charge.record.price
    assert price is not None  # noqa: S101 - there is no charge without one
    hours = _EXACT.divide(Decimal(paid_ns), Decimal(_NS_PER_HOUR))
    num_units = _EXACT.add(Decimal(price.share), Decimal(_num_idle(charge.record)))
    quantity = _EXACT.multiply(hours, num_units).quantize(_QUANTITY_GRAIN, None, _EXACT)
    unit, listed = _UNITS[price.unit], Decimal(price.amount)
    kept = _EXACT.subtract(Decimal(1), Decimal(price.discount or 0))
    list_cost = _EXACT.multiply(listed, quantity).quantize(_COST_GRAIN, context=_EXACT)
    return {
        "BilledCost": cost,
        "EffectiveCost": cost,
        "ContractedCost": cost,
        # Without a discount it is the same amount, to the last digit.
        "ListCost": cost if kept == 1 else list_cost,
        "ListUnitPrice": listed,
        "ContractedUnitPrice": _EXACT.multiply(listed, kept),
        "PricingQuantity": quantity,
        "PricingUnit": unit,
        "ConsumedQuantity": quantity,
        "ConsumedUnit": unit,
    }


def _category(record: RankRecord) -> str:
    # A commitment of FOCUS has an id, which nobody tells: reserved capacity stays standard.
    priced = None if record.price is None else record.price.capacity_type
    scheduled = None if record.job is None else record.job.capacity_type
    return "Dynamic" if (priced or scheduled) == "spot" else "Standard"


def _num_idle(record: RankRecord) -> int:
    """Return the devices that no rank drives and this one books."""
    return idle_device_ns(record) // record.total_ns if record.total_ns else 0


def _fixed_cells(charge: Charge, account: Account) -> dict[str, Cell]:
    record = charge.record
    run, attempt, rank, job = record.run, record.attempt, record.rank, record.job
    provider = account.provider or (job and job.provider) or "unknown"
    region = None if job is None else job.region
    return {
        "BillingAccountId": account.account,
        "BillingAccountName": account.account,
        "BillingCurrency": charge.currency,
        "ChargeCategory": "Usage",
        "ChargeDescription": f"Training run {run.name}: rank {rank.rank} in attempt "
        f"{attempt.number}",
        "ChargeFrequency": "Usage-Based",
        "InvoiceIssuerName": provider,
        "PricingCategory": _category(record),
        "ProviderName": provider,
        "PublisherName": provider,
        "RegionId": region,
        "RegionName": region,
        "ResourceId": f"{run.id}/{attempt.number}/{rank.rank}",
        "ResourceName": run.name,
        "ResourceType": "Training rank",
        "ServiceCategory": "AI and Machine Learning",
        "ServiceName": "Model training",
        "SubAccountId": run.project,
        "SubAccountName": run.project,
        "Tags": json.dumps(_tags(record), sort_keys=True),
    }


def _tags(record: RankRecord) -> dict[str, str]:
    # FOCUS wants the keys of users as they are, and those of whoever writes the rows with a prefix.
    own = {
        "run_id": record.run.id,
        "run_name": record.run.name,
        "attempt": str(record.attempt.number),
        "rank": str(record.rank.rank),
        "host": record.rank.host_name,
        "outcome": record.attempt.outcome.value,
        "price_source": "" if record.price is None else record.price.source,
    }
    return record.run.labels() | {f"costlens/{name}": value for name, value in own.items()}


def _moment(unix_s: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=unix_s)


def _month(moment: datetime) -> datetime:
    return moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
