"""Cells that run again, and cells that are interrupted, in a process that goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from costlens.core.records import RankRecord
from costlens.export.record import read_run
from costlens.observe.last_words import witness_end
from costlens.storage.run_folder import RunFolder
from costlens.storage.store import Store
from tests.faults.jobs import HERE, Ended, Job, checkout


def run_cells(folder: Path, kind: str) -> tuple[Ended, list[RankRecord]]:
    """Return how the kernel ended, and every record, oldest first."""
    job = Job(folder, "job_notebook.py", kind).end()
    assert job.code == 0
    paths = sorted(folder.glob("*/record-*.json"), key=lambda path: path.parent.name)
    records = [RankRecord.model_validate_json(path.read_bytes()) for path in paths]
    for record in records:
        assert sum(record.time_ns.values()) == record.total_ns
        assert record.telemetry.faults == {}
    return job, sorted(records, key=lambda record: record.attempt.start_time)


def test_a_cell_that_runs_again_goes_on_in_its_run(tmp_path: Path) -> None:
    """The same run and attempt; the second ten iterations come on top of the first."""
    job, (record,) = run_cells(tmp_path, "again")
    told = [line for line in job.out if line.startswith("RUN ")]
    assert told == [f"RUN {record.run.id} 1"] * 2
    assert (record.progress.iterations, record.progress.samples) == (20, 80)
    assert record.attempt.outcome.value == "completed"
    # A kernel is older than the work: what it did before is not paid for.
    assert record.attempt.paid_from == "start"


def test_an_interrupted_cell_can_be_run_again(tmp_path: Path) -> None:
    """Ctrl-C in the sixth iteration: five count, it does not; ten more follow in the same run."""
    job, (record,) = run_cells(tmp_path, "interrupted")
    assert any("KeyboardInterrupt" in line for line in job.err)
    assert (record.progress.iterations, record.progress.samples) == (15, 60)
    assert record.attempt.outcome.value == "completed"


def test_an_error_in_a_later_cell_is_not_the_runs(tmp_path: Path) -> None:
    """A typo after the training ends its own cell; the run was complete when the kernel ended."""
    job, (record,) = run_cells(tmp_path, "typo")
    assert any("NameError" in line for line in job.err)
    assert record.attempt.outcome.value == "completed"
    assert record.attempt.error_type is None


def test_a_restarted_kernel_begins_a_new_run(tmp_path: Path) -> None:
    """A busy kernel is killed: its run is lost to any reader, and the next one is another run.

    The run that the kernel held open has its heartbeats; what came after the last is not claimed.
    """
    environ = {"PATH": os.defpath, "COSTLENS_DIR": str(tmp_path), "COSTLENS_WINDOW_S": "0.01"}
    killed = subprocess.run(
        [sys.executable, str(HERE / "job_notebook.py"), "killed"],
        env={**environ, **checkout()},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    (folder,) = tmp_path.iterdir()
    store = Store(tmp_path)
    lost = read_run(RunFolder(store, folder.name), time.time(), witness_end)
    assert lost.attempts[-1].outcome.value == "lost"
    assert len(lost.attempts) == 1, "the same kernel, the same attempt"
    _, records = run_cells(tmp_path, "again")
    assert [record.attempt.number for record in records] == [1, 1]
    assert records[0].run.id == lost.run.id != records[1].run.id
    assert records[1].attempt.outcome.value == "completed"
    assert records[1].progress.samples == 80


@pytest.mark.slow
def test_hooks_survive_an_interrupt(tmp_path: Path) -> None:
    """The batch whose update never came is no update; the next cell counts as the first did.

    It is an iteration: seen from hooks, a loop that is interrupted looks like one left by `break`.
    """
    _, (record,) = run_cells(tmp_path, "hooks")
    assert record.progress.optimizer_steps == 5 + 10
    assert record.progress.iterations == 6 + 10


@pytest.mark.slow
def test_an_interrupted_fit_can_be_run_again(tmp_path: Path) -> None:
    """The cell makes a new callback: two runs, one interrupted after 5 steps, one complete."""
    _, (first, second) = run_cells(tmp_path, "lightning")
    assert (first.progress.optimizer_steps, first.progress.samples) == (5, 20)
    assert first.attempt.outcome.value == "interrupted"
    assert (second.progress.optimizer_steps, second.progress.samples) == (10, 40)
    assert second.attempt.outcome.value == "completed"
    assert first.run.id != second.run.id
