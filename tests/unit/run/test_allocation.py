"""A process in a Slurm job, with a scontrol that answers like the real one; see tests/slurm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPT = """
import costlens
with costlens.start("paid") as run:
    with run.iteration(samples=1):
        pass
"""
ANSWER = "JobId=77 SubmitTime={submit} EligibleTime={eligible} StartTime={start} RunTime=$run_time"


@pytest.fixture
def start_s(tmp_path: Path) -> int:
    """Return when the allocation began: 100 s ago, after a wait of 300 s and a hold of 600 s."""
    start_s = int(time.time()) - 100
    text = ANSWER.format(submit=start_s - 900, eligible=start_s - 300, start=start_s)
    program = tmp_path / "bin" / "scontrol"
    program.parent.mkdir()
    program.write_text(
        f"#!/bin/sh\necho asked >> {tmp_path}/asked\n"
        f"run_time=$(date -u -d @$(($(date +%s) - {start_s})) +%H:%M:%S)\n"
        f'echo "{text}"\n'
    )
    program.chmod(0o755)
    return start_s


def train(tmp_path: Path, **environ: str) -> None:
    """Run a short training in job 77."""
    subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={
            "PATH": f"{tmp_path / 'bin'}:{os.defpath}",
            "COSTLENS_DIR": str(tmp_path / "runs"),
            "COSTLENS_SUMMARY": "0",
            "COSTLENS_GPU_HOUR_PRICE": "",
            "COSTLENS_NODE_HOUR_PRICE": "36",
            "SLURM_JOB_ID": "77",
            **environ,
        },
        check=True,
        timeout=60,
    )


def report(tmp_path: Path, run: str) -> dict[str, object]:
    """Return the merged record of a run."""
    done = subprocess.run(
        [sys.executable, "-m", "costlens", "report", run, "--json"],
        env={"PATH": os.defpath, "COSTLENS_DIR": str(tmp_path / "runs")},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_the_allocation_is_paid_for_from_its_start_and_once(tmp_path: Path, start_s: int) -> None:
    """The first process of a job pays for the 100 s before it, the second does not; C143's wait."""
    train(tmp_path)
    train(tmp_path)
    first, second = (report(tmp_path, run) for run in ("paid-77", "paid-77-2"))
    assert first["queue"]["wait_s"] == 300
    assert first["queue"]["deferral_s"] == 600
    assert second["queue"]["wait_s"] is None
    for merged, lead_s in ((first, 100), (second, 0)):
        spent = dict(merged["time_s"])
        total_s = spent.pop("total")
        assert sum(spent.values()) == pytest.approx(total_s, abs=1e-6)
        assert total_s > lead_s
        assert float(merged["cost"]["total"]) == pytest.approx(total_s / 100, abs=1e-6)
    record = json.loads((tmp_path / "runs" / "paid-77" / "record-1-0.json").read_text())
    began_s = record["attempt"]["process_start_time"]
    assert first["startup"]["allocation_s"] == pytest.approx(began_s - start_s, abs=0.01)
    assert first["attempts"][0]["start_time"] == pytest.approx(start_s, abs=0.01)
    assert second["startup"]["allocation_s"] is None
    assert second["time_s"]["total"] < first["time_s"]["total"]
    assert (tmp_path / "asked").read_text().count("asked") == 1
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [
        ".allocations",
        "paid-77",
        "paid-77-2",
    ]


FORKING = """
import os, signal, sys, time
import costlens

def pipes():
    links = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:  # that of the listing
            pass
    return {link for link in links if link.startswith("pipe:")}


run = costlens.start("forks", window_s=0.1)
children = []
while not os.path.exists(sys.argv[1]):  # scontrol is being asked
    time.sleep(0.01)
for _ in range(20):
    pid = os.fork()
    if pid == 0:
        with open(f"{sys.argv[2]}/{os.getpid()}", "w") as file:
            file.write("\\n".join(pipes()))
        time.sleep(300)
        os._exit(0)
    children.append(pid)
began = time.monotonic()
while run.parts.state.lead_ns is None and time.monotonic() < began + 60:
    with run.iteration(samples=1):
        time.sleep(0.01)
print("KNOWN" if run.parts.state.lead_ns is not None else "NEVER")
for pid in children:
    while not os.path.exists(f"{sys.argv[2]}/{pid}"):
        time.sleep(0.01)
    kept = set(open(f"{sys.argv[2]}/{pid}").read().split()) - pipes()
    if kept:
        print("KEPT")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
run.finish()
"""


def test_children_forked_while_scontrol_is_asked_keep_nothing_open(
    tmp_path: Path, start_s: int
) -> None:
    """No end of a pipe is theirs that the answer would have to wait for, as long as they live."""
    (tmp_path / "open").mkdir()
    program = tmp_path / "bin" / "scontrol"
    program.write_text(program.read_text().replace("run_time=", "sleep 1\nrun_time=", 1))
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            "-c",
            FORKING,
            str(tmp_path / "asked"),
            str(tmp_path / "open"),
        ],
        env={
            "PATH": f"{tmp_path / 'bin'}:{os.defpath}",
            "COSTLENS_DIR": str(tmp_path / "runs"),
            "COSTLENS_SUMMARY": "0",
            "SLURM_JOB_ID": "77",
        },
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert done.stdout.split() == ["KNOWN"]


WAITING = """
import os, sys, time
import costlens

with costlens.start("paid", window_s=0.1) as run:
    print("OPEN", run.attempt, flush=True)
    while not os.path.exists(sys.argv[1]):
        with run.iteration(samples=1):
            time.sleep(0.01)
    time.sleep(0.5)
"""


def test_a_rank_that_is_first_learns_later_what_rank_0_was_told(
    tmp_path: Path, start_s: int
) -> None:
    """It looks again with every window, and asks nobody; both pay from the allocation on."""
    step = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "2"}
    first = subprocess.Popen(
        [sys.executable, "-c", WAITING, str(tmp_path / "gate")],
        env={
            "PATH": f"{tmp_path / 'bin'}:{os.defpath}",
            "COSTLENS_DIR": str(tmp_path / "runs"),
            "SLURM_JOB_ID": "77",
            "SLURM_PROCID": "1",
            **step,
        },
        stdout=subprocess.PIPE,
        text=True,
    )
    assert first.stdout is not None
    assert first.stdout.readline().split() == ["OPEN", "1"]
    assert not (tmp_path / "asked").exists()
    train(tmp_path, SLURM_PROCID="0", **step)
    (tmp_path / "gate").touch()
    assert first.wait(60) == 0
    first.stdout.close()
    for rank in (0, 1):
        record = json.loads((tmp_path / "runs" / "paid-77" / f"record-1-{rank}.json").read_text())
        assert record["attempt"]["paid_from"] == "allocation"
        began_s = record["attempt"]["process_start_time"]
        assert record["startup"]["allocation_s"] == pytest.approx(began_s - start_s, abs=0.01)
    assert (tmp_path / "asked").read_text().count("asked") == 1


ENDING = """
import sys, time
import costlens

run = costlens.start("paid", window_s=0.1)
while len(sys.argv) > 1 and not run.parts.state.job.times_unknown:
    time.sleep(0.01)
for _ in range(20):
    with run.iteration(samples=1):
        pass
began = time.monotonic()
run.finish()
print(time.monotonic() - began)
"""


@pytest.mark.parametrize("when", ["at once", "later"])
def test_a_controller_that_hangs_keeps_neither_steps_nor_the_end(
    tmp_path: Path, start_s: int, when: str
) -> None:
    """Every step counts, the end comes in time, and the record says why times are missing."""
    (tmp_path / "bin" / "scontrol").write_text("#!/bin/sh\nexec sleep 300\n")
    arguments = ["wait"] if when == "later" else []
    done = subprocess.run(
        [sys.executable, "-c", ENDING, *arguments],
        env={
            "PATH": f"{tmp_path / 'bin'}:{os.defpath}",
            "COSTLENS_DIR": str(tmp_path / "runs"),
            "COSTLENS_SUMMARY": "0",
            "SLURM_JOB_ID": "77",
        },
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert float(done.stdout) < 5
    assert "costlens.close.timeout" not in done.stderr
    record = json.loads((tmp_path / "runs" / "paid-77" / "record-1-0.json").read_text())
    assert record["progress"]["samples"] == 20
    assert record["attempt"]["outcome"] == "completed"
    assert record["attempt"]["paid_from"] == "process_start"
    assert record["job"]["times_unknown"] == "scontrol did not answer within 2 s"
