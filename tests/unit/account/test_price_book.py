"""Price books: our TOML, SkyPilot's catalogs, and the list prices that come with costlens."""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costlens.account.price_book import BookEntry, parse_price_book, read_bundled
from costlens.errors import ConfigError

SITE = b"""
version = 1
currency = "EUR"
provider = "own"
source = "contract 17"

[[price]]
accelerator = "H100-SXM"
per_gpu_hour = 2.10
since = 2026-01-01

[[price]]
instance_type = "cpu-64"
per_node_hour = "1.5"
since = 2026-02-01
currency = "USD"
region = "north"
capacity_type = "spot"
source = "invoice"
"""

# Rows as SkyPilot's catalogs have them: own columns in any order, an empty spot price, a machine
# without accelerators, fractions of a GPU.
SKYPILOT = b"""InstanceType,AcceleratorName,AcceleratorCount,vCPUs,Price,Region,GpuInfo,SpotPrice,\
AvailabilityZone
gpu_8x_h100,H100,8.0,208.0,23.92,us-east-1,"{'Gpus': [{'Count': 8.0}]}",10.0,us-east-1a
gpu_8x_a100,A100,8.0,124.0,10.32,us-east-1,"{'a': 1}",,
cpu_4x,,,4.0,0.2,us-east-1,,,
cpu-d3,,0,4,0.0992,eu-north1,,0.0,
"""


def test_our_format_with_defaults_for_the_whole_book() -> None:
    """What the head says holds for each entry that does not say otherwise; amounts are exact."""
    book = parse_price_book(SITE, "prices.toml")
    assert book.entries == (
        BookEntry(
            amount=Decimal("2.10"),
            unit="gpu",
            currency="EUR",
            since=date(2026, 1, 1),
            accelerator="H100-SXM",
            provider="own",
            source="contract 17",
        ),
        BookEntry(
            amount=Decimal("1.5"),
            unit="node",
            currency="USD",
            since=date(2026, 2, 1),
            instance_type="cpu-64",
            provider="own",
            region="north",
            capacity_type="spot",
            source="invoice",
        ),
    )


def test_skypilots_columns() -> None:
    """A machine's price is divided by its GPUs; spot is an entry of its own; A100 means 40 GB."""
    book = parse_price_book(SKYPILOT, "vms.csv")
    seen = [
        (e.accelerator, e.instance_type, f"{e.amount.normalize():f}", e.unit, e.capacity_type)
        for e in book.entries
    ]
    assert seen == [
        ("H100", "gpu_8x_h100", "2.99", "gpu", "on_demand"),
        ("H100", "gpu_8x_h100", "1.25", "gpu", "spot"),
        ("A100-40GB", "gpu_8x_a100", "1.29", "gpu", "on_demand"),
        (None, "cpu_4x", "0.2", "node", "on_demand"),
        (None, "cpu-d3", "0.0992", "node", "on_demand"),
    ]
    assert {(e.currency, e.since) for e in book.entries} == {("USD", None)}
    assert (book.entries[0].region, book.entries[0].zone) == ("us-east-1", "us-east-1a")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"\xff\xfe", "not UTF-8"),
        (b"price = 3", "version"),
        (b"{not toml", "neither TOML nor a SkyPilot catalog"),
        (b'version = 2\ncurrency = "USD"\nprice = []', "version: Input should be 1"),
        (SITE.replace(b"per_gpu_hour = 2.10", b"per_gpu_hour = -1"), "price 1, per_gpu_hour"),
        (SITE.replace(b"per_gpu_hour = 2.10", b"per_gpu_hour = nan"), "price 1, per_gpu_hour"),
        (SITE.replace(b"since = 2026-01-01", b""), "price 1, since: Field required"),
        (SITE.replace(b"per_gpu_hour = 2.10", b""), "either per_gpu_hour or per_node_hour"),
        (SITE.replace(b'accelerator = "H100-SXM"', b""), "name of the accelerator"),
        (SITE.replace(b"accelerator", b"acelerator"), "price 1, acelerator: Extra inputs"),
        (SKYPILOT.replace(b"23.92", b"cheap"), "line 2: not a row"),
        (SKYPILOT.replace(b"23.92", b"-1"), "line 2: not a row"),
        (SKYPILOT.replace(b"23.92", b"1e400"), "line 2: not a row"),
    ],
)
def test_an_unusable_book_says_where(text: bytes, told: str) -> None:
    """A price that cannot be right is refused with book, entry and field, and never taken for 0."""
    with pytest.raises(ConfigError, match=told) as caught:
        parse_price_book(text, "prices.toml")
    assert "price book prices.toml" in str(caught.value)


def test_the_bundled_list_prices_are_dated_and_say_where_they_are_from() -> None:
    """Each has a day, a provider and a source; the book is marked as list prices."""
    book = read_bundled()
    assert book.is_list
    assert book.label == "price book bundled (list prices)"
    assert 10 <= len(book.entries) <= 40
    for entry in book.entries:
        assert entry.since is not None
        assert entry.since <= date(2026, 11, 30)
        assert entry.amount > 0
        assert entry.provider
        assert (entry.source or "").startswith("https://")


def test_a_byte_order_mark_is_no_part_of_a_book() -> None:
    """Spreadsheets put one in front of what they export."""
    mark = b"\xef\xbb\xbf"
    assert parse_price_book(mark + SKYPILOT, "x") == parse_price_book(SKYPILOT, "x")
    assert parse_price_book(mark + SITE, "x") == parse_price_book(SITE, "x")


@settings(max_examples=500)
@given(
    book=st.sampled_from([SITE, SKYPILOT]),
    start=st.integers(0, 400),
    length=st.integers(0, 60),
    put=st.one_of(
        st.binary(max_size=12), st.sampled_from([b"\0", b'"', b"1e999999", b"[[", b"\n"])
    ),
)
def test_a_damaged_book_is_refused_or_has_usable_prices(
    book: bytes, start: int, length: int, put: bytes
) -> None:
    """Whatever stands in the file, the error is ours, and a price that comes out is a number."""
    data = book[:start] + put + book[start + length :]
    try:
        entries = parse_price_book(data, "x").entries
    except ConfigError:
        return
    for entry in entries:
        assert entry.amount.is_finite()
        assert 0 <= entry.amount < 10**9
        assert entry.accelerator or entry.instance_type


def test_the_book_in_the_documentation_is_one() -> None:
    """What users copy from docs/prices.md works as it stands there."""
    page = (Path(__file__).parents[3] / "docs" / "prices.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL)
    gpu, node = parse_price_book(example.encode(), "prices.toml").entries
    assert (gpu.accelerator, gpu.unit, gpu.currency, gpu.provider) == (
        "H100-SXM",
        "gpu",
        "EUR",
        "own",
    )
    assert (node.instance_type, node.unit) == ("cpu-64", "node")
