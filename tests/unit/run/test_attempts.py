"""Attempts of one run, real ones: what each took, what they cost, and their sums."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from costlens.config import Config
from costlens.core import lifetime
from costlens.core.clock import NS_PER_S
from costlens.core.records import RankRecord
from costlens.core.run_record import RunRecord
from costlens.export.record import read_run
from costlens.run import Run
from costlens.storage.run_folder import RunFolder
from costlens.storage.store import Store
from costlens.testing import FakeClock

SCRIPT = """
import sys, time
ahead_ns, real = int(sys.argv[1]), time.perf_counter_ns
time.perf_counter_ns = lambda: real() + ahead_ns
import costlens
with costlens.start("skewed") as run:
    for _ in range(5):
        with run.iteration(samples=1, tokens=10):
            time.sleep(0.01)
"""


def _launch(folder: Path, ahead_s: float) -> None:
    """Run an attempt of the run ``job`` in a process whose monotonic clock is ahead."""
    subprocess.run(
        [sys.executable, "-c", SCRIPT, str(round(ahead_s * NS_PER_S))],
        env={
            "PATH": "/usr/bin:/bin",
            "COSTLENS_DIR": str(folder),
            "COSTLENS_RUN_ID": "job",
            "COSTLENS_SUMMARY": "0",
        },
        timeout=60,
        check=True,
    )


def _merged(folder: Path) -> RunRecord:
    return read_run(RunFolder(Store(folder), "job"), time.time())


def _stored(folder: Path, attempt: int) -> RankRecord:
    return RankRecord.model_validate_json(
        (folder / "job" / f"record-{attempt}-0.json").read_bytes()
    )


def _numbers(part: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Return every number of a document with its path."""
    if isinstance(part, dict):
        for name, value in part.items():
            yield from _numbers(value, f"{path}.{name}")
    elif isinstance(part, list):
        for value in part:
            yield from _numbers(value, path)
    elif isinstance(part, int | float):
        yield path, part


@pytest.mark.parametrize("ahead_s", [(1e6, 0.0), (0.0, 1e6)])
def test_a_restart_does_not_subtract_the_clock_of_another_process_c010(
    tmp_path: Path, ahead_s: tuple[float, float]
) -> None:
    """C010: process A's monotonic clock is 1e6 s ahead of B's, or B's of A's.

    Every duration and rate is >= 0, B's own elapsed time is < 60 s, and the run's is what A stored
    and B's.
    """
    for skew_s in ahead_s:
        _launch(tmp_path, skew_s)
    run, stored_s = _merged(tmp_path), _stored(tmp_path, 1).total_ns / NS_PER_S
    negative = {
        path: value for path, value in _numbers(json.loads(run.model_dump_json())) if value < 0
    }
    assert negative == {}
    assert run.rates.tokens_per_s is not None
    assert 0 < run.rates.tokens_per_s <= 1000
    first, second = run.attempts
    assert first.wall_s == pytest.approx(stored_s)
    assert 0.05 <= second.wall_s < 60
    assert run.time_s["total"] == pytest.approx(stored_s + second.wall_s)


def test_totals_are_the_runs_and_rates_the_attempts_c056(tmp_path: Path) -> None:
    """C056: attempt 1 makes 1000 tokens in 10 s, attempt 2 makes 100 in 1 s, on a fake clock.

    The rate is 100/s in attempt 2's first report, which is its only one; 1100 tokens; 11 s paid.
    """
    lifetime.claim_ordinal()  # neither attempt is to begin with the test's process
    config = Config(
        name="job", run_id="job", dir=str(tmp_path), node_hour_price="3600", summary=False
    )
    for tokens, seconds in ((100, 1.0), (10, 0.1)):
        clock = FakeClock()
        run = Run(config, clock=clock).open()
        for _ in range(10):
            with run.iteration(tokens=tokens):
                clock.advance(seconds)
        run.finish()
    newest = _stored(tmp_path, 2)
    assert newest.telemetry.num_windows == 1
    assert newest.rates.tokens_per_s == pytest.approx(100)
    merged = _merged(tmp_path)
    assert merged.rates.tokens_per_s == pytest.approx(100)
    assert merged.progress.tokens == 1100
    assert merged.time_s["total"] == 11.0
    assert merged.cost.total == "11.00"
    assert merged.cost.by_attempt == {"1": "10.00", "2": "1.00"}
    assert merged.cost.per_1k_tokens == "10.00"
