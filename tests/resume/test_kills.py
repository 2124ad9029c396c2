"""A training that is killed again and again ends with the weights of one that was not."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

STEPS = 80
STEP_S = 0.03


def environment(place: Path | None) -> dict[str, str]:
    """Return an environment in which the run keeps its checkpoints in ``place``."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("COSTLENS_")}
    kept |= {"COSTLENS_SUMMARY": "0", "COSTLENS_WINDOW_S": "0.5", "COSTLENS_MAX_LOSS": "1s"}
    return kept if place is None else {**kept, "COSTLENS_CHECKPOINT_URL": str(place)}


def launch(place: Path, target: Path, job: str) -> subprocess.Popen[str]:
    """Start a job."""
    command = [sys.executable, "-m", f"tests.resume.{job}", str(STEPS), str(target), str(STEP_S)]
    return subprocess.Popen(
        command,
        env=environment(place),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def steps_of(job: subprocess.Popen[str], kill_after: int | None = None) -> list[int]:
    """Return the steps that the job did; kill it after so many of its own."""
    assert job.stdout is not None
    seen: list[int] = []
    with job.stdout:
        for line in job.stdout:
            seen.append(int(line))
            if len(seen) == kill_after:
                job.send_signal(signal.SIGKILL)
    job.wait(60)
    return seen


def report(place: Path) -> dict[str, object]:
    """Return the merged record of the run."""
    command = [sys.executable, "-m", "costlens", "report", "--json"]
    done = subprocess.run(
        command, env=environment(place), capture_output=True, text=True, check=True, timeout=60
    )
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("job", ["job_plain", "job_lightning"])
def test_ten_kills_change_no_bit(tmp_path: Path, job: str) -> None:
    """Killed at ten random steps and launched again: the same weights, moments and schedule."""
    assert steps_of(launch(tmp_path / "calm", tmp_path / "calm.txt", job)) == [*range(1, STEPS + 1)]
    choice, place, target = random.Random(5), tmp_path / "rough", tmp_path / "rough.txt"
    done: list[int] = []
    for _ in range(10):
        done += steps_of(launch(place, target, job), kill_after=choice.randint(10, 40))
        if target.exists():
            break
    if not target.exists():
        done += steps_of(launch(place, target, job))
    assert target.read_text() == (tmp_path / "calm.txt").read_text()
    assert len(done) > STEPS, "no step was done again: the job was never killed"
    progress = report(place)["progress"]
    assert isinstance(progress, dict)
    assert progress["productive_steps"] == STEPS
    assert progress["lost_steps"] > 0
