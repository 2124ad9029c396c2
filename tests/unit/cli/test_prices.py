"""``costlens prices``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Cli


def test_it_shows_the_price_the_rule_and_the_source(cli: Cli) -> None:
    """What would be used, why, since when and where that is from; the same as JSON."""
    arguments = ("prices", "--book", "bundled", "--accelerator", "NVIDIA L4", "--provider", "modal")
    code, out, err = cli(*arguments)
    assert (code, err) == (0, "")
    assert "0.8 USD per gpu and hour" in out
    assert "the only list price that fits NVIDIA L4 modal" in out
    assert "price book bundled (list prices)" in out
    assert "https://modal.com/pricing" in out
    answer = json.loads(cli(*arguments, "--json")[1])
    assert (answer["price"]["amount"], answer["price"]["since"]) == ("0.8", "2026-06-25")
    assert [entry["provider"] for entry in answer["candidates"]] == ["modal"]


def test_an_ambiguous_price_is_unknown_with_its_candidates(cli: Cli) -> None:
    """Each entry that fits is a row; nothing is guessed."""
    answer = json.loads(cli("prices", "--book", "bundled", "--accelerator", "A10", "--json")[1])
    assert answer["price"] is None
    assert "COSTLENS_CLOUD_PROVIDER" in answer["unknown"]
    assert {entry["provider"] for entry in answer["candidates"]} == {"lambda", "modal"}
    code, out, _ = cli("prices", "--book", "bundled", "--accelerator", "A10")
    assert code == 0
    assert "lambda" in out
    assert "modal" in out


def test_variables_go_first(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable's price is what a run would use, whatever the book says."""
    monkeypatch.setenv("COSTLENS_GPU_HOUR_PRICE", "2.50")
    monkeypatch.setenv("COSTLENS_ENERGY_KWH_PRICE", "0.31")
    monkeypatch.setenv("COSTLENS_PRICE_BOOK", "bundled")
    out = cli("prices", "--accelerator", "A10")[1]
    assert "2.50 USD per gpu and hour" in out
    assert "COSTLENS_GPU_HOUR_PRICE goes before any price book" in out
    assert "0.31 USD per kWh" in out


def test_nothing_set_says_what_to_set(cli: Cli) -> None:
    """C106: unknown, with the hint that a record would hold."""
    code, out, _ = cli("prices")
    assert code == 0
    assert "no price: set COSTLENS_NODE_HOUR_PRICE" in out


def test_a_broken_book_is_a_usage_error(cli: Cli, tmp_path: Path) -> None:
    """The message names the book and the place in it."""
    path = tmp_path / "prices.toml"
    path.write_text('version = 1\ncurrency = "dollars"\nprice = []')
    code, _, err = cli("prices", "--book", str(path))
    assert code == 2
    assert f"price book {path}: currency" in err
    code, _, err = cli("prices", "--book", str(tmp_path / "none.toml"))
    assert code == 1
    assert "price_book: cannot read" in err


def test_the_books_place_is_shown_without_secrets(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C151: the query of a signed URL stays out of `costlens config`."""
    monkeypatch.setenv("COSTLENS_PRICE_BOOK", "https://me:pw@host/prices.csv?sig=t0ken")
    out = cli("config")[1] + cli("config", "--json")[1]
    assert "t0ken" not in out
    assert "pw" not in out
    assert "host/prices.csv" in out


def test_the_scheduler_of_this_machine_is_asked(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a run here would know of its machine decides here, too; an option goes first."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("POD_NAME", "train-0")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "cloud.provider=lambda")
    arguments = ("prices", "--book", "bundled", "--accelerator", "NVIDIA A10", "--json")
    assert json.loads(cli(*arguments)[1])["price"]["amount"] == "0.86"
    modal = json.loads(cli(*arguments, "--provider", "modal")[1])
    assert modal["price"]["amount"] == "1.1"
