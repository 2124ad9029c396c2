"""The ledger as FOCUS rows."""

from __future__ import annotations

import itertools
import json
from datetime import datetime, timedelta, timezone
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from costlens.account.cost import charge_rank
from costlens.account.focus import COLUMNS, Account, make_rows
from costlens.account.ledger import merge
from costlens.core.job_records import JobPart
from costlens.core.records import RankRecord
from tests.unit.account.build import START, make_price, make_record

# What version 1.2 of the specification calls mandatory.
MANDATORY = {
    *("BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency"),
    *("BillingPeriodEnd", "BillingPeriodStart", "ChargeCategory", "ChargeClass"),
    *("ChargeDescription", "ChargePeriodEnd", "ChargePeriodStart", "ContractedCost"),
    *("EffectiveCost", "InvoiceIssuerName", "ListCost", "PricingQuantity", "PricingUnit"),
    *("ProviderName", "PublisherName", "ServiceCategory", "ServiceName"),
}
MAY_BE_NULL = {"ChargeClass"}
COSTS = ("BilledCost", "EffectiveCost", "ListCost", "ContractedCost")


def rows_of(*records: RankRecord, since: float | None = None) -> list[dict]:
    """Return the rows of priced records."""
    charges = [charge for record in records if (charge := charge_rank(record)) is not None]
    return [*make_rows(charges, Account("acme", "own"), since)]


def utc(*parts: int) -> datetime:
    """Return a moment in UTC."""
    return datetime(*parts, tzinfo=timezone.utc)


def test_every_hour_of_a_rank_is_a_row() -> None:
    """From 08:53:20 for 2 h at 36 an hour: the rest of the hour, a whole one, and 53:20."""
    record = make_record(time_s={"compute": 7200.0}, price=make_price("36", unit="gpu"))
    rows = rows_of(record)
    assert [row["ChargePeriodStart"] for row in rows] == [
        utc(2025, 10, 9, 8, 53, 20),
        utc(2025, 10, 9, 9),
        utc(2025, 10, 9, 10),
    ]
    assert [row["ChargePeriodEnd"] for row in rows] == [
        utc(2025, 10, 9, 9),
        utc(2025, 10, 9, 10),
        utc(2025, 10, 9, 10, 53, 20),
    ]
    assert [row["BilledCost"] for row in rows] == [4, 36, 32]
    assert [row["PricingQuantity"].quantize(Decimal("1e-6")) for row in rows] == [
        Decimal("0.111111"),
        1,
        Decimal("0.888889"),
    ]
    assert {row["PricingUnit"] for row in rows} == {"GPU-Hours"}
    assert {(row["BillingPeriodStart"], row["BillingPeriodEnd"]) for row in rows} == {
        (utc(2025, 10, 1), utc(2025, 11, 1))
    }


def test_rows_have_what_the_specification_demands() -> None:
    """Every column of 1.0 and the mandatory ones of 1.2, with their types and enumerations."""
    record = make_record(time_s={"compute": 60.0}, price=make_price("36"))
    labels = {"project": "llm", "team": "nlp", "dataset_version": "v3"}
    record = record.model_copy(update={"run": record.run.model_copy(update=labels)})
    (row,) = rows_of(record)
    assert [*row] == [*COLUMNS]
    assert {*row} >= MANDATORY
    assert not {name for name in MANDATORY - MAY_BE_NULL if row[name] is None}
    kinds = {"text": str, "decimal": Decimal, "time": datetime}
    for name, cell in row.items():
        assert cell is None or isinstance(cell, kinds[COLUMNS[name]]), name
    assert (row["ChargeCategory"], row["ChargeFrequency"]) == ("Usage", "Usage-Based")
    assert row["ServiceCategory"] == "AI and Machine Learning"
    assert (row["BillingAccountId"], row["SubAccountId"]) == ("acme", "llm")
    tags = json.loads(row["Tags"])
    assert tags["team"] == "nlp"
    assert tags["dataset_version"] == "v3"
    assert tags["costlens/run_id"] == "tiny-1"
    assert (tags["costlens/attempt"], tags["costlens/rank"]) == ("1", "0")


def test_no_price_makes_no_row_and_free_makes_rows_of_zero() -> None:
    """C106: unknown is absent; a price of 0 costs exactly 0."""
    assert rows_of(make_record(time_s={"compute": 60.0})) == []
    (row,) = rows_of(make_record(time_s={"compute": 60.0}, price=make_price("0")))
    assert row["BilledCost"] == 0
    assert rows_of(make_record(price=make_price("36"))) == [], "no time, no charge"


def test_a_discount_and_idle_devices_show_in_prices_and_quantities() -> None:
    """One GPU of four driven, a quarter off: four GPU-hours an hour, listed at the full price."""
    price = make_price("4", unit="gpu").model_copy(update={"discount": "0.25"})
    record = make_record(time_s={"compute": 360.0}, start_time=START, price=price)
    rank = record.rank.model_copy(update={"unowned_gpus": 3})
    (row,) = rows_of(record.model_copy(update={"rank": rank}))
    assert (row["BilledCost"], row["ContractedCost"], row["ListCost"]) == (
        Decimal("1.2"),
        Decimal("1.2"),
        Decimal("1.6"),
    )
    assert (row["ListUnitPrice"], row["ContractedUnitPrice"]) == (4, 3)
    assert row["PricingQuantity"] == Decimal("0.4")


def test_the_cloud_that_a_record_names_is_the_provider() -> None:
    """Unless the command says otherwise; unknown where nobody says."""
    job = JobPart(scheduler="slurm", provider="aws", region="eu-west-1")
    record = make_record(time_s={"compute": 60.0}, price=make_price("36"), job=job)
    charge = charge_rank(record)
    (row,) = make_rows([charge], Account())
    assert (row["ProviderName"], row["InvoiceIssuerName"], row["RegionId"]) == (
        "aws",
        "aws",
        "eu-west-1",
    )
    (row,) = make_rows([charge], Account(provider="own"))
    assert row["ProviderName"] == "own"
    bare = charge_rank(make_record(time_s={"compute": 60.0}, price=make_price("36")))
    (row,) = make_rows([bare], Account())
    assert (row["ProviderName"], row["RegionId"]) == ("unknown", None)


def test_hours_before_since_are_left_out() -> None:
    """Only hours that reach beyond the moment are exported."""
    record = make_record(time_s={"compute": 7200.0}, price=make_price("36"))
    since = utc(2025, 10, 9, 10).timestamp()
    assert [row["BilledCost"] for row in rows_of(record, since=since)] == [32]


@st.composite
def runs(draw) -> list[RankRecord]:
    """Draw the records of a run at odd prices and times."""
    return [
        make_record(
            attempt,
            rank,
            time_s={
                "startup": draw(st.floats(0, 9000)),
                "compute": draw(st.floats(0, 9000)),
            },
            start_time=START + draw(st.floats(0, 10**6)),
            price=make_price(
                draw(st.sampled_from(["2.5", "3.333333333333", "0.000000000001", "98.32"])),
                share=draw(st.sampled_from(["1", "8", "0.125", "0.333333333333"])),
                unit=draw(st.sampled_from(["gpu", "node"])),
                currency=draw(st.sampled_from(["USD", "EUR"])),
            ),
        )
        for attempt in range(1, draw(st.integers(1, 2)) + 1)
        for rank in range(draw(st.integers(1, 2)))
    ]


@given(runs())
def test_rows_add_up_to_the_ledger(records: list[RankRecord]) -> None:
    """To the last digit, by currency, attempt and rank; hours touch and none is negative."""
    rows = rows_of(*records)
    cost = merge(records, now=START + 10**7).cost
    totals = cost.by_currency or {cost.currency: cost.total}
    for currency, total in totals.items():
        of_currency = [row for row in rows if row["BillingCurrency"] == currency]
        for column in COSTS:
            assert sum(row[column] for row in of_currency) == Decimal(total)
    for record in records:
        resource = f"tiny-1/{record.attempt.number}/{record.rank.rank}"
        own = [row for row in rows if row["ResourceId"] == resource]
        paid = sum(
            ((row["ChargePeriodEnd"] - row["ChargePeriodStart"]) for row in own), timedelta()
        )
        assert abs(paid.total_seconds() - record.total_ns / 1e9) < 1e-5
        for before, after in itertools.pairwise(own):
            assert before["ChargePeriodEnd"] == after["ChargePeriodStart"]
        for row in own:
            assert row["BilledCost"] >= 0
            product = row["ListUnitPrice"] * row["PricingQuantity"]
            assert abs(product - row["ListCost"]) <= Decimal("2e-9")


def test_spot_capacity_is_priced_dynamically() -> None:
    """What the price says of the capacity goes before what the scheduler says."""
    record = make_record(time_s={"compute": 36.0}, price=make_price("1"))
    spot = record.model_copy(update={"job": JobPart(scheduler="k8s", capacity_type="spot")})
    said = record.price.model_copy(update={"capacity_type": "on_demand"})
    categories = [
        rows_of(each)[0]["PricingCategory"]
        for each in (record, spot, spot.model_copy(update={"price": said}))
    ]
    assert categories == ["Standard", "Dynamic", "Standard"]
