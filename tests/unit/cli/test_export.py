"""``costlens export``."""

from __future__ import annotations

import csv
import io
import sys
import uuid
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from costlens.account.focus import COLUMNS
from costlens.storage.files import read_bounded
from tests.unit.cli.conftest import Cli


def test_all_runs_as_csv(cli: Cli, run_dir: Path) -> None:
    """One row an hour of each priced rank; what has no price is named on standard error."""
    code, out, err = cli("export")
    assert code == 0
    (row,) = csv.DictReader(io.StringIO(out))
    assert [*row] == [*COLUMNS]
    assert (row["BilledCost"], row["BillingCurrency"]) == ("10.000000000", "USD")
    assert row["ChargePeriodStart"] == "2025-10-09T09:53:20Z"
    assert row["ChargeClass"] == ""
    assert err == "costlens: alpha-1: 1 of 1 rank records have no price; left out\n"


def test_one_run_into_a_file(cli: Cli, run_dir: Path, tmp_path: Path) -> None:
    """A run by a part of its id, billed to an account and a provider."""
    path = tmp_path / "costs.csv"
    assert cli("export", "beta", "-o", str(path), "--account", "42", "--provider", "own") == (
        0,
        "",
        "",
    )
    (row,) = csv.DictReader(io.StringIO(path.read_text(encoding="utf-8")))
    assert (row["BillingAccountId"], row["ProviderName"]) == ("42", "own")


def test_parquet_keeps_decimals_and_times(cli: Cli, run_dir: Path, tmp_path: Path) -> None:
    """Amounts are exact decimals, times are UTC, and an empty export has the same columns."""
    path = tmp_path / "costs.parquet"
    assert cli("export", "--since", "2025-10-09T09:30", "-o", str(path))[0] == 0
    table = pq.read_table(path)
    assert table.column_names == [*COLUMNS]
    assert table["BilledCost"].to_pylist() == [Decimal("10.000000000")]
    (start,) = table["ChargePeriodStart"].to_pylist()
    assert start.isoformat() == "2025-10-09T09:53:20+00:00"
    assert cli("export", "--since", "1h", "-o", str(path))[0] == 0
    assert pq.read_table(path).num_rows == 0


def test_without_pyarrow_the_extra_is_named(
    cli: Cli, run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CSV works without it."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    code, _, err = cli("export", "-o", str(tmp_path / "costs.parquet"))
    assert code == 1
    assert "pip install 'costlens[parquet]'" in err
    assert cli("export")[0] == 0


def test_a_file_that_cannot_be_written_is_refused(cli: Cli, run_dir: Path, tmp_path: Path) -> None:
    """The message names the file and why."""
    for name in ("none/costs.csv", "none/costs.parquet"):
        code, _, err = cli("export", "-o", str(tmp_path / name))
        assert code == 2
        assert "No such file" in err


@pytest.mark.parametrize("name", ["costs.csv", "costs.parquet"])
def test_a_url_takes_the_rows(cli: Cli, run_dir: Path, tmp_path: Path, name: str) -> None:
    """A store gets the same bytes as a disk; one that refuses says so."""
    local, url = tmp_path / name, f"memory://{uuid.uuid4().hex}/{name}"
    assert cli("export", "beta", "-o", str(local))[0] == 0
    assert cli("export", "beta", "-o", url) == (0, "", "")
    assert read_bounded(url, 10_000_000) == local.read_bytes()
    code, _, err = cli("export", "beta", "-o", f"nosuchscheme://bucket/{name}")
    assert code == 1
    assert "nosuchscheme://bucket" in err


def test_a_run_is_exported_by_its_folders_path(cli: Cli, run_dir: Path) -> None:
    """The folder may be anywhere."""
    code, out, _ = cli("export", str(run_dir / "beta-2"), "--dir", "/nowhere")
    assert code == 0
    assert len(out.splitlines()) == 2
