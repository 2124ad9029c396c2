"""``costlens runs``."""

from __future__ import annotations

import json
from pathlib import Path

from tests.unit.cli.conftest import Cli


def test_runs_are_listed_newest_first(cli: Cli, run_dir: Path) -> None:
    """One line a run: state, start, wall time, steps, tokens and cost, unknown as a dash."""
    code, out, err = cli("runs")
    assert (code, err) == (0, "")
    _, beta, alpha = out.splitlines()
    assert beta.split() == [
        *("beta-2", "completed", "2025-10-09", "09:53", "10.0", "s", "10", "1,000", "10.00", "USD")
    ]
    assert alpha.split()[-1] == "–"


def test_json_lists_the_same_rows(cli: Cli, run_dir: Path) -> None:
    """Scripts get numbers and exact amounts; what is unknown is null."""
    rows = json.loads(cli("runs", "--json")[1])
    assert [row["id"] for row in rows] == ["beta-2", "alpha-1"]
    assert rows[0] == {
        "id": "beta-2",
        "state": "completed",
        "started": 1_760_003_600.0,
        "wall_s": 10.0,
        "optimizer_steps": 10,
        "tokens": 1000,
        "cost": "10.00",
        "currency": "USD",
        "is_partial": False,
    }
    assert rows[1]["cost"] is None


def test_a_run_that_cannot_be_read_does_not_hide_the_others(cli: Cli, run_dir: Path) -> None:
    """A launch that never wrote, or wrote nonsense, is listed as such."""
    (run_dir / "alpha-1" / "record-1-0.json").write_bytes(b"{half")
    code, out, _ = cli("runs")
    assert code == 0
    assert "no record" in next(line for line in out.splitlines() if line.startswith("alpha-1"))
    assert "beta-2" in out


def test_no_runs_is_not_an_error(cli: Cli, tmp_path: Path) -> None:
    """An empty list says where it looked; as JSON it is an empty list."""
    code, out, _ = cli("runs", "--dir", str(tmp_path / "none"))
    assert (code, out) == (0, f"no runs in {tmp_path / 'none'}\n")
    assert json.loads(cli("runs", "--dir", str(tmp_path / "none"), "--json")[1]) == []
