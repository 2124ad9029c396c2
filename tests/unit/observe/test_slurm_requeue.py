"""A job is queued again where it runs, and left alone where somebody has cancelled it."""

from __future__ import annotations

from pathlib import Path

import pytest

from costlens.observe.placement.slurm_requeue import requeue_job
from tests.unit.observe.test_slurm_times import make_scontrol

SCONTROL = """
echo "$@" >> "$0.log"
[ "$1" = show ] && echo "JobId=1 JobState={state} Restarts=0"
true
"""


def asked(folder: Path) -> list[str]:
    """Return what scontrol was asked."""
    return (folder / "bin" / "scontrol.log").read_text().splitlines()


def test_a_running_job_is_queued_again(tmp_path: Path) -> None:
    """By its own id, after it was seen to run."""
    environ = make_scontrol(tmp_path / "bin", SCONTROL.format(state="RUNNING"))
    assert requeue_job(environ) == "job 1 is queued again"
    assert asked(tmp_path) == ["show job 1 --oneliner", "requeue 1"]


def test_a_task_of_an_array_is_queued_again_alone(tmp_path: Path) -> None:
    """The others go on."""
    environ = make_scontrol(tmp_path / "bin", SCONTROL.format(state="RUNNING"))
    requeue_job({**environ, "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3"})
    assert asked(tmp_path)[-1] == "requeue 7_3"


@pytest.mark.parametrize("state", ["CANCELLED", "TIMEOUT", "COMPLETING"])
def test_a_job_that_was_cancelled_stays_so(tmp_path: Path, state: str) -> None:
    """Scancel sends the same SIGTERM as a preemption does."""
    environ = make_scontrol(tmp_path / "bin", SCONTROL.format(state=state))
    assert f"is {state}, not RUNNING" in requeue_job(environ)
    assert asked(tmp_path) == ["show job 1 --oneliner"]


def test_elsewhere_the_reason_is_told(tmp_path: Path) -> None:
    """No job, no Slurm."""
    assert requeue_job({"PATH": "/nowhere"}) == "this is no job of Slurm"
    assert requeue_job({"PATH": "/nowhere", "SLURM_JOB_ID": "1"}) == "scontrol does not answer here"
