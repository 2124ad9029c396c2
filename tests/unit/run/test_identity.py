"""Run identity and attempts: restarts of one run find one another, two launches never mix."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import costlens

SCRIPT = """
import costlens
with costlens.start("twice") as run:
    with run.iteration(samples=1):
        pass
    print(run.id, run.attempt)
"""


def _launch(folder: Path, **environ: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={
            "PATH": "/usr/bin:/bin",
            "COSTLENS_DIR": str(folder),
            "COSTLENS_SUMMARY": "0",
            **environ,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.split()


def test_two_launches_of_one_run_are_two_attempts_c026(tmp_path: Path) -> None:
    """C026: the launcher's restart count stays 0; stored state numbers the attempts 1 and 2."""
    launcher = {
        "COSTLENS_RUN_ID": "job",
        "RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_RESTART_COUNT": "0",
    }
    assert _launch(tmp_path, **launcher) == ["job", "1"]
    assert _launch(tmp_path, **launcher) == ["job", "2"]
    assert sorted(path.name for path in (tmp_path / "job").glob("record-*")) == [
        "record-1-0.json",
        "record-2-0.json",
    ]


def test_ranks_of_one_launch_share_the_attempt_and_the_run(tmp_path: Path) -> None:
    """Ranks of a launch agree on run and attempt without any id; the next launch does not join."""
    launcher = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"}
    first = [_launch(tmp_path, RANK=str(rank), **launcher) for rank in (1, 0)]
    assert first[0] == first[1]
    assert first[0][1] == "1"
    second = [_launch(tmp_path, RANK=str(rank), **launcher) for rank in (0, 1)]
    assert second[0] == second[1]
    assert second[0] == [first[0][0], "2"]


def test_without_an_id_every_launch_is_a_run_of_its_own(tmp_path: Path) -> None:
    """Two launches that nothing ties together are two runs."""
    assert _launch(tmp_path)[0] != _launch(tmp_path)[0]


def test_the_checkpoint_url_ties_restarts_together(tmp_path: Path) -> None:
    """run.json at the checkpoint URL gives a restart its run; an explicit id wins."""
    url = str(tmp_path / "checkpoints")
    first = _launch(tmp_path / "runs", COSTLENS_CHECKPOINT_URL=url)
    second = _launch(tmp_path / "runs", COSTLENS_CHECKPOINT_URL=url)
    assert second == [first[0], "2"]
    assert json.loads((tmp_path / "checkpoints" / "run.json").read_bytes())["run_id"] == first[0]
    assert _launch(tmp_path / "runs", COSTLENS_CHECKPOINT_URL=url, COSTLENS_RUN_ID="mine") == [
        "mine",
        "1",
    ]


def test_a_chain_of_jobs_with_one_checkpoint_url_is_one_run(tmp_path: Path) -> None:
    """The next job goes on where the checkpoints are; the first one has named the run."""
    url = str(tmp_path / "checkpoints")
    first = _launch(tmp_path / "runs", COSTLENS_CHECKPOINT_URL=url, SLURM_JOB_ID="41")
    second = _launch(tmp_path / "runs", COSTLENS_CHECKPOINT_URL=url, SLURM_JOB_ID="42")
    again = _launch(tmp_path / "runs", COSTLENS_CHECKPOINT_URL=url, SLURM_JOB_ID="42")
    assert first[0].endswith("41")
    assert second == [first[0], "2"]
    assert again == [first[0], "3"]


def test_run_folders_live_beside_checkpoints_when_only_those_are_set(tmp_path: Path) -> None:
    """Without COSTLENS_DIR the run folder is `<checkpoint url>/.costlens`."""
    run_id = _launch(tmp_path, COSTLENS_DIR="", COSTLENS_CHECKPOINT_URL=str(tmp_path / "c"))[0]
    assert (tmp_path / "c" / ".costlens" / run_id / "record-1-0.json").exists()


@pytest.mark.parametrize("hostile", ["../../x", "/etc/x", "a\\b", "..", "C:\\x", "x" * 180])
def test_hostile_ids_stay_inside_the_folder_c153(tmp_path: Path, hostile: str) -> None:
    """C153: whatever a run is called, nothing is written outside the run folder."""
    root = tmp_path / "deep" / "root"
    run_id, attempt = _launch(root, COSTLENS_RUN_ID=hostile)
    assert attempt == "1"
    assert (root / run_id / "record-1-0.json").exists()
    outside = [path for path in tmp_path.rglob("*") if path.is_file() and root not in path.parents]
    assert outside == []


def test_a_job_of_slurm_names_the_run_and_its_trainings_stay_apart(tmp_path: Path) -> None:
    """One process of a batch script, another after it, and the same two after a requeue."""
    job = {"SLURM_JOB_ID": "77", "SLURM_JOB_PARTITION": "train"}
    assert _launch(tmp_path, **job) == ["twice-77", "1"]
    assert _launch(tmp_path, **job) == ["twice-77-2", "1"]
    again = {**job, "SLURM_RESTART_COUNT": "1"}
    assert _launch(tmp_path, **again) == ["twice-77", "2"]
    assert _launch(tmp_path, **again) == ["twice-77-2", "2"]
    record = json.loads((tmp_path / "twice-77" / "record-2-0.json").read_text())
    assert (record["job"]["scheduler"], record["job"]["restart_count"]) == ("slurm", 1)


def test_trainings_of_one_process_stay_apart_in_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second run of a process has its own id, whether or not the first one has ended well."""
    monkeypatch.setenv("SLURM_JOB_ID", "78")
    monkeypatch.setenv("COSTLENS_DIR", str(tmp_path))
    ids = []
    for outcome in ("failed", "completed"):
        run = costlens.start("apart", summary=False)
        ids.append((run.id, run.attempt))
        run.finish(outcome)
    assert ids == [("apart-78", 1), ("apart-78.1", 1)]


SWEEP = """
import multiprocessing, sys, time
import costlens

def train(number):
    with costlens.start("sweep", window_s=0.1) as run:
        with run.iteration(samples=number):
            time.sleep(1.5)
        run.id  # settled

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    workers = [context.Process(target=train, args=(number,)) for number in (1, 2, 3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
"""


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_a_sweep_in_one_job_makes_a_run_of_each_process(tmp_path: Path, method: str) -> None:
    """Processes of one job that start at once, with one name: three runs of one attempt each."""
    script = tmp_path / "sweep.py"
    script.write_text(SWEEP)
    subprocess.run(
        [sys.executable, str(script), method],
        env={
            "PATH": "/usr/bin:/bin",
            "COSTLENS_DIR": str(tmp_path / "runs"),
            "COSTLENS_SUMMARY": "0",
            "SLURM_JOB_ID": "77",
        },
        timeout=100,
        check=True,
    )
    samples = {}
    for run in ("sweep-77", "sweep-77-2", "sweep-77-3"):
        (path,) = (tmp_path / "runs" / run).glob("record-*.json")
        samples[run] = json.loads(path.read_text())["progress"]["samples"]
    assert sorted(samples.values()) == [1, 2, 3]
