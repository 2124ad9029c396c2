"""The probe that finds what a rank costs: books off-thread, frozen prices, reasons."""

from __future__ import annotations

import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import fsspec
import pytest

import costlens
from costlens.config import Config
from costlens.core.attempt_state import AttemptState
from costlens.core.clock import Anchor
from costlens.core.job_records import JobPart
from costlens.core.records import RankPart, RankRecord, RunPart
from costlens.observe import pricing
from costlens.observe.pricing import PriceProbe
from tests.log_events import capture_events

BOOK = """
version = 1
currency = "USD"
[[price]]
accelerator = "H100"
per_gpu_hour = 3
since = 2026-01-01
[[price]]
instance_type = "cpu-64"
per_node_hour = 2
since = 2026-01-01
source = "contract 17"
"""
LAUNCH_NS = 1_780_000_000_000_000_000  # 2026-05-28


def _state(num_gpus: int = 0, accelerator: str | None = None) -> AttemptState:
    return AttemptState(
        run=RunPart(id="r", name="r", costlens_version="0"),
        rank=RankPart(rank=0, host_name="h", pid=1, num_gpus=num_gpus, accelerator=accelerator),
        anchor=Anchor(wall_ns=LAUNCH_NS, mono_ns=0),
        start_ns=0,
    )


def _probe(state: AttemptState, **settings: Any) -> PriceProbe:
    probe = PriceProbe(Config(**settings), state)
    probe.load()
    probe.start()
    probe.sample(0)
    return probe


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """Return a price book on disk."""
    path = tmp_path / "prices.toml"
    path.write_text(BOOK)
    return path


def test_a_book_on_disk_prices_the_first_record(book: Path) -> None:
    """The record names entry, source and day; what it costs follows from them."""
    with costlens.start(
        price_book=str(book), instance_type="cpu-64", price_discount=Decimal("0.25"), summary=False
    ) as run:
        run.id  # noqa: B018 - waits for the pipeline's begin
    record = run.finish()
    assert record is not None
    price = record.price
    assert price is not None
    assert (price.amount, price.unit, price.share, price.discount) == ("2", "node", "1", "0.25")
    assert (price.entry, price.since, price.entry_source) == ("cpu-64", "2026-01-01", "contract 17")
    assert price.source == f"price book {book}"
    assert RankRecord.model_validate_json(record.model_dump_json()) == record


def test_a_variable_goes_before_the_book(book: Path) -> None:
    """Whoever says the price is right; the book is the second choice."""
    probe = _probe(_state(), price_book=str(book), instance_type="cpu-64", node_hour_price=9)
    price: Any = probe.contribute()["price"]
    assert (price.amount, price.source, price.entry) == ("9", "argument node_hour_price", None)


def test_what_the_loop_learns_of_its_gpus_decides_from_then_on(book: Path) -> None:
    """A run is opened before it knows its model: the price follows when the GPUs are known."""
    state = _state()
    probe = _probe(state, price_book=str(book))
    assert "COSTLENS_INSTANCE_TYPE" in str(probe.contribute()["price_unknown"])
    state.rank = state.rank.model_copy(update={"num_gpus": 2})
    assert "product name" in str(probe.contribute()["price_unknown"])
    state.rank_facts["accelerator"] = "NVIDIA H100 80GB HBM3"
    price: Any = probe.contribute()["price"]
    assert (price.amount, price.unit, price.share) == ("3", "gpu", "2")


def test_what_the_scheduler_says_of_the_machine_counts(book: Path) -> None:
    """Machine, region and allocated devices come from the job where no setting says them."""
    state = _state()
    state.job = JobPart(scheduler="kubernetes", instance_type="cpu-64", capacity_type="odd")
    price: Any = _probe(state, price_book=str(book)).contribute()["price"]
    assert price.entry == "cpu-64"
    late = _state()
    probe = _probe(late, price_book=str(book))
    assert probe.contribute()["price"] is None
    late.job = JobPart(scheduler="slurm", instance_type="cpu-64")
    assert probe.contribute()["price"] == price, "the scheduler may tell later"
    state = _state(2, "H100")
    state.job = JobPart(scheduler="slurm", num_gpus=8)
    _probe(state, price_book=str(book))
    assert state.describe_rank().unowned_gpus == 6


def test_a_price_that_was_found_stays(book: Path) -> None:
    """Nothing is priced anew: not where the book changes, and not where the run goes on."""
    probe = _probe(_state(1, "H100"), price_book=str(book))
    first = probe.contribute()
    book.write_text(BOOK.replace("per_gpu_hour = 3", "per_gpu_hour = 99"))
    probe.start()
    probe.sample(1)
    assert probe.contribute() == first


def test_a_late_book_prices_the_run_when_it_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    """A book on the network holds nothing up: until it is there, the price is unknown."""
    monkeypatch.setattr(pricing, "_PATIENCE_S", 0.01)
    arrives = threading.Event()
    read = pricing.read_price_book

    def slow(url: str) -> Any:
        arrives.wait(20)
        return read(url)

    monkeypatch.setattr(pricing, "read_price_book", slow)
    with fsspec.open("memory://books/prices.toml", "wb") as file:
        file.write(BOOK.encode())
    probe = _probe(_state(1, "H100"), price_book="memory://books/prices.toml")
    assert probe.contribute()["price"] is None
    assert probe.contribute()["price_unknown"] == "argument price_book has not been read yet"
    arrives.set()
    assert probe._errand is not None
    assert probe._errand.wait(20)
    price: Any = probe.contribute()["price"]
    assert price.amount == "3"


@pytest.mark.parametrize("content", [None, "version = 3", "x" * 200])
def test_an_unreadable_book_is_told_once_and_costs_stay_unknown(
    tmp_path: Path, content: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C106: no book, a broken or an oversized one: unknown with a reason, never 0."""
    monkeypatch.setattr(pricing, "MAX_BOOK_BYTES", 100)
    path = tmp_path / "prices.toml"
    if content is not None:
        path.write_text(content)
    with capture_events() as events:
        probe = _probe(_state(), price_book=str(path))
        probe.sample(1)
    assert [event["event"] for event in events] == ["costlens.prices.unreadable"]
    assert str(path) in events[0]["message"]
    assert probe.contribute()["price"] is None
    assert "could not be read" in str(probe.contribute()["price_unknown"])


def test_a_signed_url_stays_out_of_record_and_log() -> None:
    """Law 8: the query of a URL may hold a key."""
    with capture_events() as events:
        probe = _probe(_state(), price_book="memory://books/none.toml?sig=secret")
    assert "secret" not in str(events)
    assert "secret" not in str(probe.contribute())


def test_the_bundled_prices_are_labelled() -> None:
    """List prices are used only when they are named, and every record says so."""
    probe = _probe(_state(1, "NVIDIA L4"), price_book="bundled", cloud_provider="modal")
    state_day: Any = probe.contribute()
    assert state_day["price"] is None, "the entry is younger than the launch"
    later = _state(1, "NVIDIA L4")
    later.anchor = Anchor(wall_ns=LAUNCH_NS + 90 * 86_400 * 10**9, mono_ns=0)
    price: Any = _probe(later, price_book="bundled", cloud_provider="modal").contribute()["price"]
    assert price.source == "price book bundled (list prices)"
    assert price.capacity_type == "on_demand"
    assert (price.amount, price.since) == ("0.8", "2026-06-25")
    assert price.entry_source == "https://modal.com/pricing"


def test_electricity_is_a_price_of_its_own() -> None:
    """Its price is frozen like any other, and stands beside the device's."""
    probe = _probe(_state(), energy_kwh_price="0.31", currency="EUR")
    energy: Any = probe.contribute()["energy_price"]
    assert (energy.amount_per_kwh, energy.currency) == ("0.31", "EUR")
    assert energy.source == "argument energy_kwh_price"
    assert probe.contribute()["price"] is None
