"""Two ranks under torchrun, one of them killed, launched again: every total, end to end."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

from tests.distributed.job_restart import BATCH_SIZE, KILLED_AT, MAX_STEPS
from tests.distributed.launching import TORCHRUN, Launcher

pytestmark = pytest.mark.slow

RATE = Fraction("3.6")
TORCHRUN_TWICE = (*TORCHRUN[:4], "--standalone", "--max-restarts", "1")


def command(folder: Path, *arguments: str) -> str:
    """Return what the command line prints about the runs in a folder."""
    done = subprocess.run(
        [sys.executable, "-m", "costlens", *arguments],
        env={**os.environ, "COSTLENS_DIR": str(folder)},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return done.stdout


def test_a_killed_rank_and_a_restart_add_up(launch: Launcher, tmp_path: Path) -> None:
    """C010, C026, C056: steps, samples, time and money of both launches, none lost or doubled.

    Rank 1 dies in its eighth step; the save before was at the sixth, so one step is done again.
    """
    saves = tmp_path / "saves"
    saves.mkdir()
    launch(
        "job_restart.py", str(saves), prefix=TORCHRUN_TWICE,
        COSTLENS_RUN_ID="job", COSTLENS_NODE_HOUR_PRICE="7.2",
        # A store that outlives the restart still holds the addresses of the ranks that are gone.
        TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1",
    )  # fmt: skip
    run = json.loads(command(launch.folder, "report", "job", "--json"))
    first, second = run["attempts"]
    assert (first["number"], second["number"]) == (1, 2)
    assert first["outcome"] in {"failed", "preempted"}, "whichever rank 0 noticed first"
    assert second["outcome"] == "completed"
    assert (first["start_step"], first["end_step"], first["saved_step"]) == (0, KILLED_AT, 6)
    assert (second["start_step"], second["end_step"]) == (6, MAX_STEPS)
    _check_progress(run, saves)
    _check_time_and_money(run, launch)
    _check_exports(run, launch.folder)


def _check_progress(run: dict, saves: Path) -> None:
    files = [path.read_text(encoding="utf-8") for path in saves.glob("batches-*")]
    noted = [line.split() for text in files for line in text.splitlines()]
    progress = run["progress"]
    assert progress["samples"] == sum(int(size) for _, size in noted)
    assert progress["samples"] == 2 * BATCH_SIZE * progress["optimizer_steps"]
    assert progress["optimizer_steps"] == KILLED_AT + MAX_STEPS - 6
    assert (progress["lost_steps"], progress["productive_steps"]) == (1, MAX_STEPS)


def _check_time_and_money(run: dict, launch: Launcher) -> None:
    records = launch.records(launch.folder / "job")
    assert [*records] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    paid_ns = sum(record.total_ns for record in records.values())
    assert run["time_s"]["total"] == pytest.approx(paid_ns / 1e9)
    cost, part = run["cost"], run["goodput"]
    exact = sum(RATE * record.total_ns / 3_600_000_000_000 for record in records.values())
    assert abs(Fraction(Decimal(cost["total"])) - exact) <= 4 * Fraction(1, 10**9)
    assert not cost["is_partial"]
    for kind in ("by_phase", "by_attempt", "by_rank"):
        assert sum(Decimal(money) for money in cost[kind].values()) == Decimal(cost["total"])
    wasted = part["badput"].values()
    for name, total in (("time_s", run["time_s"]["total"]), ("money", cost["total"])):
        parts = [part["productive"][name], *(spent[name] for spent in wasted)]
        assert float(sum(map(Decimal, map(str, parts)))) == pytest.approx(float(total), abs=1e-6)
    lost = part["badput"]["lost_work"]
    trained = sum(
        records[1, rank].time_ns[name]
        for rank in (0, 1)
        for name in ("forward", "backward", "optimizer", "compute")
    )
    assert lost["time_s"] == pytest.approx(trained / 1e9 / KILLED_AT, abs=1e-6)
    assert part["unpaid_s"]["down"] >= 0


def _check_exports(run: dict, folder: Path) -> None:
    rows = [*csv.DictReader(io.StringIO(command(folder, "export", "job")))]
    assert sum(Decimal(row["BilledCost"]) for row in rows) == Decimal(run["cost"]["total"])
    fleet = json.loads(command(folder, "runs", "--group-by", "outcome", "--json"))
    (group,) = fleet["groups"]
    assert group["spend"]["USD"]["total"] == run["cost"]["total"]
    assert (group["group"], group["success_rate"]) == ("completed", 1.0)
