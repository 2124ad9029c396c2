"""``costlens runs``."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.unit.account.build import START
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


def test_groups_of_runs(cli: Cli, run_dir: Path) -> None:
    """By outcome: two completed runs, one of them without a price, which is told and not zero."""
    code, out, err = cli("runs", "--group-by", "outcome")
    assert (code, err) == (0, "")
    title, line = out.splitlines()
    assert title.split()[:4] == ["outcome", "runs", "success", "paid"]
    assert line.split()[:3] == ["completed", "2", "100.0"]
    assert "10.00 USD" in line
    assert "(1 without a price)" in line
    document = json.loads(cli("runs", "--group-by", "outcome", "--json")[1])
    (group,) = document["groups"]
    assert group["spend"]["USD"]["by_outcome"] == {"completed": "10.00"}
    assert (group["num_runs"], group["num_unpriced"], group["success_rate"]) == (2, 1, 1.0)
    assert document["total"]["spend"] == group["spend"]


def test_groups_leave_out_what_cannot_be_read_and_say_so(cli: Cli, run_dir: Path) -> None:
    """A run without a readable record is in no sum."""
    (run_dir / "alpha-1" / "record-1-0.json").write_bytes(b"{half")
    _, out, err = cli("runs", "--group-by", "team")
    assert out.splitlines()[1].split()[:2] == ["–", "1"]
    assert err == "1 without a readable record are left out\n"
    assert json.loads(cli("runs", "--group-by", "team", "--json")[1])["num_unread"] == 1


@pytest.mark.parametrize(
    ("since", "expected"),
    [
        ("2025-10-09T09:30", ["beta-2"]),
        ("2025-10-09", ["beta-2", "alpha-1"]),
        ("2025-10-10", []),
        ("2025-10-09T11:30+02:00", ["beta-2"]),
        ("1h", []),
        ("5000w", ["beta-2", "alpha-1"]),
    ],
)
def test_runs_since(cli: Cli, run_dir: Path, since: str, expected: list[str]) -> None:
    """Those that were alive since a date, in UTC unless it says otherwise, or within an age."""
    assert time.time() > START + 7200 + 3600
    rows = json.loads(cli("runs", "--since", since, "--json")[1])
    assert [row["id"] for row in rows] == expected


@pytest.mark.parametrize("since", ["7", "d7", "-1d", "yesterday", "2025-13-01", ""])
def test_a_since_that_is_none_is_refused(cli: Cli, run_dir: Path, since: str) -> None:
    """The message shows what would do."""
    code, out, err = cli("runs", "--since", since)
    assert (code, out) == (2, "")
    assert "7d" in err
    assert "2026-01-31" in err


def test_an_unknown_grouping_is_refused(cli: Cli, run_dir: Path) -> None:
    """The message lists what runs can be grouped by."""
    code, _, err = cli("runs", "--group-by", "colour")
    assert code == 2
    assert "project, team, experiment, experiment_version, model" in err


def test_ids_are_whole_on_a_narrow_terminal(
    cli: Cli, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An id can be copied from 80 columns: others go first, and state and id stay."""
    from rich.console import Console

    long = "resnet-with-a-name-that-says-much-20261130-083452-d5a95177"
    (run_dir / "beta-2").rename(run_dir / long)
    monkeypatch.setattr(
        "costlens.cli.runs.make_console",
        lambda **options: Console(width=80, force_terminal=True, color_system=None),
    )
    out = cli("runs")[1]
    title, newest, _ = out.splitlines()
    assert newest.split()[:2] == [long, "completed"]
    assert title.split() == ["run", "state", "cost"]
    assert max(map(len, out.splitlines())) <= 80


def test_a_pipe_gets_every_column(cli: Cli, run_dir: Path) -> None:
    """However long an id is, where nothing limits a line, none lacks a column."""
    long = "a" * 119
    (run_dir / "beta-2").rename(run_dir / long)
    title, newest, _ = cli("runs")[1].splitlines()
    assert newest.split()[0] == long
    assert title.split()[-2:] == ["tokens", "cost"]
