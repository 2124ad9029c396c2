"""A run folder that is full, slow, read-only, far away or gone: counted, and training goes on."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults.jobs import Ended, Job

NUM_SAMPLES = 3 * 50 * 4
CLOSE_LIMIT_S = 5.0


def run_planted(folder: Path, kind: str, **environ: str) -> tuple[Ended, dict[str, Any]]:
    """Return how a job with a planted remote store ended, and what it told."""
    environ = {"COSTLENS_DIR": "planted://bucket/runs", **environ}
    job = Job(folder, "job_folder.py", kind, **environ).end()
    assert job.code == 0, job.err
    told = json.loads(job.out[-2])
    assert told["finished"]["telemetry"]["faults"] == {}
    return job, told


@pytest.mark.parametrize("kind", ["start", "middle"])
def test_a_store_that_recovers_gets_everything(tmp_path: Path, kind: str) -> None:
    """Refused for half a second, at the start or later: one warning with the reason, one recovery.

    The run then has its attempt, its record and every window; what failed is counted.
    """
    job, told = run_planted(tmp_path, kind)
    assert [*told["kept"]] == ["record-1-0.json"]
    record = told["kept"]["record-1-0.json"]
    assert record["progress"]["samples"] == NUM_SAMPLES
    assert record["attempt"]["outcome"] == "completed"
    assert record["telemetry"]["record_failures"] > 0
    assert told["windows"] == [*range(record["telemetry"]["num_windows"])]
    (failed,) = job.named("costlens.record.failed")
    assert "No space left" in failed["message"]
    assert len(job.named("costlens.record.recovered")) == 1
    # The files of telemetry are in the same store, and may have been due while it failed.
    assert {event["event"] for event in job.events} <= {
        "costlens.record.failed",
        "costlens.record.recovered",
        "costlens.export.failed",
        "costlens.export.recovered",
    }


def test_a_store_that_never_works_costs_the_record_only(tmp_path: Path) -> None:
    """One warning; the numbers are in what `finish` returns, with the failures."""
    job, told = run_planted(tmp_path, "always")
    assert told["kept"] == {}
    assert told["finished"]["progress"]["samples"] == NUM_SAMPLES
    assert told["finished"]["telemetry"]["record_failures"] > 0
    assert len(job.named("costlens.record.failed")) == 1
    assert job.delay_s < CLOSE_LIMIT_S


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["slow", "stuck"])
def test_a_store_that_dawdles_holds_nobody_up(tmp_path: Path, kind: str) -> None:
    """Writes take 3 s, or never end: no step waits for one, and the end takes 5 s at most.

    150 steps of 10 ms would take 3 s longer if a single write had been waited for. `finish` returns
    all numbers; the summary, which would have to read the store, is left out.
    """
    job, told = run_planted(tmp_path, kind, COSTLENS_SUMMARY="1")
    assert told["loop_s"] < 1.5 + 3.0
    assert job.delay_s < CLOSE_LIMIT_S
    assert told["finished"]["progress"]["samples"] == NUM_SAMPLES
    assert told["finished"]["attempt"]["outcome"] == "completed"
    assert [event["event"] for event in job.events] == ["costlens.close.timeout"]
    assert len(job.err) == 1


@pytest.fixture
def disk(tmp_path: Path, require: Callable[..., None]) -> Callable[[str], tuple[Ended, Any]]:
    """Return what runs a job with a small file system that nobody else sees."""

    def run(kind: str) -> tuple[Ended, dict[str, Any]]:
        unshare = [shutil.which("unshare") or "unshare", "--map-root-user", "--mount"]
        try:
            done = subprocess.run([*unshare, "true"], capture_output=True, check=False)
            is_allowed = done.returncode == 0
        except OSError:
            is_allowed = False
        require("mounts", is_allowed, "unshare --map-root-user --mount is not allowed here")
        job = Job(tmp_path, "job_disk.py", kind, str(tmp_path), prefix=tuple(unshare)).end()
        assert job.code == 0, job.err
        told = json.loads(job.out[-2])
        assert told["finished"]["telemetry"]["faults"] == {}
        return job, told

    return run


@pytest.mark.parametrize(
    ("kind", "reason"), [("full", "No space left"), ("read-only", "Read-only file system")]
)
def test_a_disk_that_is_full_or_read_only_for_a_while(
    disk: Callable[[str], tuple[Ended, Any]], kind: str, reason: str
) -> None:
    """Half a second in mid-run: counted, told once, made up for, and nothing is left over."""
    job, told = disk(kind)
    (name,) = told["kept"]
    record = told["kept"][name]
    assert name == "record-1-0.json"
    assert record["progress"]["samples"] == NUM_SAMPLES
    assert record["attempt"]["outcome"] == "completed"
    assert record["telemetry"]["record_failures"] > 0
    (failed,) = job.named("costlens.record.failed")
    assert reason in failed["message"]
    assert len(job.named("costlens.record.recovered")) == 1
    assert told["others"] == []


def test_a_run_folder_that_vanishes_is_made_again(tmp_path: Path) -> None:
    """Somebody removes it in mid-run: the record is whole again, and nothing is said to fail."""
    job = Job(tmp_path, "job_disk.py", "vanished", str(tmp_path)).end()
    assert job.code == 0, job.err
    told = json.loads(job.out[-2])
    assert [*told["kept"]] == ["record-1-0.json"]
    record = told["kept"]["record-1-0.json"]
    assert record["progress"]["samples"] == NUM_SAMPLES
    assert record["attempt"]["outcome"] == "completed"
    assert record["telemetry"]["faults"] == {}
