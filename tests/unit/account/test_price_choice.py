"""Which entry of a price book is taken, and when none is."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from costlens.account.price_book import BookEntry, PriceBook, parse_price_book, read_bundled
from costlens.account.price_choice import Choice, PriceQuery, choose_price
from tests.unit.account.test_price_book import SKYPILOT

DAY = date(2026, 6, 1)
H100 = "NVIDIA H100 80GB HBM3"


def _entry(amount: str, accelerator: str | None = "H100", **marks: Any) -> BookEntry:
    unit = marks.pop("unit", "gpu")
    since = marks.pop("since", date(2026, 1, 1))
    return BookEntry(Decimal(amount), unit, "USD", since, accelerator, **marks)


def _choose(*entries: BookEntry, **query: Any) -> Choice:
    asked = PriceQuery(**{"day": DAY, "accelerator": H100, "drives_gpu": True, **query})
    return choose_price(PriceBook("prices.toml", entries), asked)


def _amount(choice: Choice) -> str | None:
    return None if choice.entry is None else f"{choice.entry.amount:f}"


def test_the_newest_entry_of_the_launch_day_counts() -> None:
    """A price change is a new entry: it holds from its day on, and not before."""
    old = _entry("3", since=date(2026, 1, 1))
    new = _entry("2", since=date(2026, 7, 1))
    assert _amount(_choose(old, new)) == "3"
    assert _amount(_choose(old, new, day=date(2026, 7, 1))) == "2"
    assert _amount(_choose(old, new, day=date(2025, 12, 31))) is None


@given(
    days=st.lists(st.integers(0, 400), min_size=1, max_size=8, unique=True),
    launch=st.integers(0, 400),
    later=st.integers(1, 400),
)
def test_a_later_entry_never_changes_the_price_of_a_launch(
    days: list[int], launch: int, later: int
) -> None:
    """Whatever is added to a book after the launch, the launch keeps its price."""
    first = date(2025, 1, 1)
    entries = [_entry(str(day + 1), since=first + timedelta(day)) for day in days]
    day = first + timedelta(launch)
    before = _choose(*entries, day=day)
    added = _entry("999", since=day + timedelta(later))
    assert _choose(*entries, added, day=day).entry == before.entry
    held = [number for number in days if number <= launch]
    assert _amount(before) == (str(max(held) + 1) if held else None)


def test_the_most_specific_entry_counts() -> None:
    """What names the region, the form or the machine goes before what does not."""
    general, here = _entry("3"), _entry("2", region="eu-north1")
    assert _amount(_choose(general, here, region="eu-north1")) == "2"
    assert _amount(_choose(general, here, region="us-east-1")) == "3"
    assert _amount(_choose(_entry("3"), _entry("4", "H100-SXM"), _entry("1", "H100-PCIe"))) == "4"
    machine = _entry("5", instance_type="p5.48xlarge")
    assert _amount(_choose(general, machine, instance_type="P5.48xlarge")) == "5"


def test_a_better_fit_elsewhere_is_no_reason_to_be_charged_there() -> None:
    """Whose machine it is, is not known: the other provider's less exact entry may be the one."""
    entries = [_entry("3", provider="a"), _entry("4", "H100-SXM", provider="b")]
    assert _amount(_choose(*entries)) is None
    assert _amount(_choose(*entries, provider="a")) == "3"


def test_capacity_is_on_demand_where_nobody_says_otherwise() -> None:
    """Spot is another price; unknown capacity is charged, and named, as on_demand."""
    entries = [_entry("3", capacity_type="on_demand"), _entry("1", capacity_type="spot")]
    assert _amount(_choose(*entries, capacity_type="spot")) == "1"
    taken = _choose(*entries)
    assert _amount(taken) == "3"
    assert "on_demand, for nothing else is known" in taken.rule
    assert _amount(_choose(*entries, capacity_type="reserved")) is None


def test_several_prices_that_fit_are_unknown_with_the_candidates() -> None:
    """Nobody guesses: the candidates are named, and the setting that would tell them apart."""
    entries = [_entry("3", provider="a"), _entry("2", provider="b"), _entry("9", "A100")]
    choice = _choose(*entries)
    assert choice.entry is None
    assert choice.rule == (
        "price book prices.toml has several prices that fit: H100 b 2.00 USD; H100 a 3.00 USD; set "
        "COSTLENS_CLOUD_PROVIDER to tell them apart"
    )
    assert [entry.provider for entry in choice.candidates] == ["b", "a"]
    assert _amount(_choose(*entries, provider="a")) == "3"


def test_alike_prices_are_one_price() -> None:
    """A provider that charges the same in each region needs no region."""
    entries = [_entry("3", region=region) for region in ("x", "y", "z")]
    assert _amount(_choose(*entries)) == "3"
    assert _amount(_choose(*entries, _entry("4", region="w"))) is None


def test_currencies_are_never_taken_for_one_another() -> None:
    """C111: the same amount in two currencies is two prices."""
    entries = [_entry("3", region="x"), replace(_entry("3", region="y"), currency="EUR")]
    assert _amount(_choose(*entries)) is None


def test_a_node_has_its_price_by_its_instance_type() -> None:
    """A rank without GPUs is priced by its machine, or not at all."""
    node = _entry("8", None, unit="node", instance_type="cpu-64")
    gpu = _entry("3")
    cpu_rank = {"accelerator": None, "drives_gpu": False}
    assert _amount(_choose(node, gpu, **cpu_rank, instance_type="cpu-64")) == "8"
    assert "set COSTLENS_INSTANCE_TYPE" in _choose(node, gpu, **cpu_rank).rule
    # A GPU's own price goes first; without one the node's pays for its GPUs, too.
    assert _amount(_choose(node, gpu, instance_type="cpu-64")) == "3"
    assert _amount(_choose(node, instance_type="cpu-64")) == "8"


def test_a_gpu_without_a_name_is_priced_by_its_machine_only() -> None:
    """The name of the GPU may be unknown; the machine's type is then enough."""
    entries = [_entry("3", instance_type="p5"), _entry("1", "T4", instance_type="g4")]
    assert _amount(_choose(*entries, accelerator=None, instance_type="p5")) == "3"
    assert "product name of the GPU is not known" in _choose(*entries, accelerator=None).rule


def test_nothing_that_fits_says_what_was_looked_for() -> None:
    """The reason names the book, the device and the day."""
    assert _choose(_entry("1", "T4")).rule == (
        "price book prices.toml has no price of NVIDIA H100 80GB HBM3 on_demand, for nothing else "
        "is known, by 2026-06-01"
    )


def test_skypilots_catalog_by_zone_and_capacity() -> None:
    """Region or zone, spot or not, as SkyPilot lists them."""
    book = parse_price_book(SKYPILOT, "vms.csv")
    query = PriceQuery(DAY, H100, drives_gpu=True)
    assert _amount(choose_price(book, query)) == "2.990000000000"
    spot = replace(query, region="us-east-1a", capacity_type="spot")
    assert _amount(choose_price(book, spot)) == "1.250000000000"
    assert choose_price(book, replace(query, region="mars")).entry is None
    assert choose_price(book, replace(query, accelerator="NVIDIA A100-SXM4-80GB")).entry is None


def test_bundled_prices_need_the_provider() -> None:
    """List prices of several providers differ; naming one gives its dated price."""
    query = PriceQuery(date(2026, 11, 30), H100, drives_gpu=True)
    assert "COSTLENS_CLOUD_PROVIDER" in choose_price(read_bundled(), query).rule
    choice = choose_price(read_bundled(), replace(query, provider="lambda"))
    assert _amount(choice) == "3.78"
    assert choice.book == "price book bundled (list prices)"
