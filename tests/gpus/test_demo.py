"""``costlens demo --fake-gpus``: time, money and devices of simulated GPUs, from end to end."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from costlens.cli.demo.fake_gpus.model import Board
from costlens.core.run_record import RunRecord

Demo = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def demo(tmp_path: Path, require: Callable[[str, bool, str], None]) -> Demo:
    """Return what runs the demo in a process of its own."""
    require("nvml", shutil.which("gcc") is not None, "no gcc to compile the stand-in driver with")

    def run(*arguments: str, path: str = os.environ["PATH"]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "costlens", "demo", "--plain", "--max-steps", "8", *arguments],
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
            cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PATH": path},
        )

    return run


def test_time_money_and_devices_add_up(demo: Demo) -> None:
    """Four GPUs at 2.50 an hour each: money is time × 4 × price, and energy is all of theirs."""
    done = demo("--fake-gpus", "4", "--price", "2.5", "--json")
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    jsonschema.validate(document, RunRecord.model_json_schema())
    time_s, cost, gpu = document["time_s"], document["cost"], document["gpu"]
    total_s = time_s.pop("total")
    assert sum(time_s.values()) == pytest.approx(total_s)
    assert float(cost["total"]) == pytest.approx(4 * 2.5 * total_s / 3600, rel=1e-6)
    assert sum(map(Decimal, cost["by_phase"].values())) == Decimal(cost["total"])
    assert (gpu["num_devices"], gpu["is_simulated"], gpu["is_partial"]) == (4, True, False)
    devices = gpu["devices"]
    assert len({device["uuid"] for device in devices}) == 4
    assert all(device["is_simulated"] for device in devices)
    assert gpu["energy_joules"] == pytest.approx(sum(d["energy_joules"] for d in devices))
    watched_s, board = sum(device["energy_s"] for device in devices), Board()
    assert 0 < watched_s < 4 * total_s
    assert board.idle_watts < gpu["energy_joules"] / watched_s < board.limit_watts
    assert 0.5 < gpu["utilization"] < 1
    assert document["telemetry"]["faults"] == {}
    assert document["problems"] == []


def test_the_page_says_simulated(demo: Demo) -> None:
    """Who looks over a shoulder must see that no such machine exists."""
    done = demo("--fake-gpus", "2")
    assert "GPUs (simulated)" in done.stdout
    assert "2 GPUs" in done.stdout
    assert "simulated" in done.stderr


def test_without_a_compiler_the_demo_says_what_is_missing(demo: Demo, tmp_path: Path) -> None:
    """One line, and no traceback."""
    done = demo("--fake-gpus", "2", path=str(tmp_path))
    assert done.returncode == 1
    assert "C compiler" in done.stderr
    assert "Traceback" not in done.stderr
