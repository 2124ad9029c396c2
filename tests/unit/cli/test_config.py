"""``costlens config``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from costlens.config import Config
from tests.unit.cli.conftest import Cli


def _rows(out: str) -> dict[str, dict[str, object]]:
    return {row["setting"]: row for row in json.loads(out)}


def test_every_setting_is_shown_with_where_it_came_from(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Arguments, variables and defaults are told apart, for each setting there is."""
    monkeypatch.setenv("COSTLENS_NODE_HOUR_PRICE", "1.20")
    rows = _rows(cli("config", "--json", "--dir", str(tmp_path))[1])
    assert set(rows) == set(Config.model_fields)
    assert rows["dir"]["source"] == "argument dir"
    assert rows["node_hour_price"] == {
        "setting": "node_hour_price",
        "value": "1.20",
        "origin": "variable",
        "source": "COSTLENS_NODE_HOUR_PRICE",
    }
    assert (rows["window_s"]["value"], rows["window_s"]["origin"]) == (10.0, "default")
    assert rows["gpu_hour_price"]["value"] is None


def test_the_table_says_the_same(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """For people: setting, value and source in a row."""
    monkeypatch.setenv("COSTLENS_NAME", "tiny")
    code, out, err = cli("config")
    assert (code, err) == (0, "")
    rows = [line.split() for line in out.splitlines()]
    assert ["name", "tiny", "COSTLENS_NAME"] in rows
    assert ["currency", "USD", "default"] in rows


def test_no_secret_of_a_url_is_shown(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """C151: user, password and query of a store's URL stay out of the dump."""
    monkeypatch.delenv("COSTLENS_DIR")
    monkeypatch.setenv("COSTLENS_CHECKPOINT_URL", "s3://me:s3cret@bucket/run?token=t0ken")
    out = cli("config")[1] + cli("config", "--json")[1]
    assert "s3cret" not in out
    assert "t0ken" not in out
    assert "bucket/run" in out
