"""What scontrol tells of a job, recorded from a real one, and what happens when it does not."""

from __future__ import annotations

import os
import stat
import subprocess
import time
from pathlib import Path

import pytest

from costlens.observe.placement.slurm_times import JobTimes, ask_times, parse_times
from tests.unit.observe.recordings import read_recorded

SUBMIT_S = 1796030805.0


@pytest.fixture
def in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make UTC the local time, as it was on the machine that recorded."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def make_scontrol(folder: Path, body: str) -> dict[str, str]:
    """Return the environment of job 1 with a scontrol of this shell code on the path."""
    folder.mkdir(exist_ok=True)
    program = folder / "scontrol"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return {"PATH": f"{folder}:{os.defpath}", "SLURM_JOB_ID": "1"}


def test_local_times_are_read_as_the_machine_writes_them(in_utc: None) -> None:
    """Submitted 09:26:45 with --begin three seconds later, and started then."""
    found = parse_times(read_recorded("scontrol_running.txt"), "1")
    assert found == JobTimes(SUBMIT_S, SUBMIT_S + 3, SUBMIT_S + 3, 0.0)


def test_a_task_of_an_array_is_found_among_all() -> None:
    """The id of the array's last task shows every task, one a line."""
    text = read_recorded("scontrol_array.txt")
    found = {job_id: parse_times(text, job_id) for job_id in ("5", "6", "7")}
    assert found["7"] is None
    for job_id in ("5", "6"):
        times = found[job_id]
        assert times is not None
        assert None not in times
        assert (times.submit_time or 0) <= (times.eligible_time or 0) <= (times.start_time or 0)


@pytest.mark.parametrize("word", ["Unknown", "N/A", "None", "0", "99999999999999999999", "x", "-5"])
def test_what_is_no_time_is_unknown(word: str) -> None:
    """Slurm has several words for it; none of them is 0."""
    found = parse_times(f"JobId=1 SubmitTime={word} EligibleTime={word} StartTime={word}", "1")
    assert found == JobTimes()


def test_run_time_counts_days() -> None:
    """A job that has run for two days and a bit."""
    found = parse_times("JobId=1 RunTime=2-01:02:03", "1")
    assert found == JobTimes(run_time_s=2 * 86400 + 3723)


def test_a_name_that_looks_like_a_time_changes_nothing() -> None:
    """Only the first field of a name counts, and a job's name is one word of the line."""
    line = "JobId=1 JobName=SubmitTime=5 SubmitTime=1000 StartTime=1900 Comment=x StartTime=7"
    assert parse_times(line, "1") == JobTimes(1000.0, None, 1900.0, None)


def test_scontrol_is_asked_for_unix_seconds_of_this_job(tmp_path: Path) -> None:
    """The answer depends on no time zone; an array's task is asked for by array and index."""
    body = 'echo "JobId=1 SubmitTime=$([ "$SLURM_TIME_FORMAT" = %s ] && echo 1000) Shown=$3"'
    environ = make_scontrol(tmp_path / "bin", body)
    assert ask_times(environ) == JobTimes(submit_time=1000.0)
    body = 'echo "JobId=1 SubmitTime=${3%_*}${3#*_}00"'
    array = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3"}
    assert ask_times({**make_scontrol(tmp_path / "bin", body), **array}) == JobTimes(7300.0)


def test_without_scontrol_the_reason_is_told() -> None:
    """A container often lacks Slurm's tools."""
    assert ask_times({"PATH": "/nowhere", "SLURM_JOB_ID": "1"}) == "scontrol is not installed here"


def test_a_scontrol_that_fails_or_hangs_is_left(tmp_path: Path) -> None:
    """An unknown job, and a controller that is gone: a reason, in bounded time, and no process."""
    failing = make_scontrol(tmp_path / "failing", "echo 'Invalid job id' >&2; exit 1")
    assert ask_times(failing) == "scontrol does not know job 1"
    hanging = make_scontrol(tmp_path / "hanging", f"echo $$ > {tmp_path}/pid; exec sleep 60")
    began = time.monotonic()
    assert ask_times(hanging, timeout_s=0.5) == "scontrol did not answer within 0.5 s"
    assert time.monotonic() - began < 30
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_the_process_is_never_forked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Handlers for forks would run, and a fork in between would keep a pipe of ours open."""
    environ = make_scontrol(tmp_path / "bin", "echo JobId=1 SubmitTime=1000")
    forked: list[object] = []
    monkeypatch.setattr(subprocess, "_fork_exec", lambda *a: forked.append(a), raising=False)
    monkeypatch.setattr(os, "fork", lambda: forked.append("fork"))
    monkeypatch.setattr(os, "pipe", lambda: forked.append("pipe"))
    assert ask_times(environ) == JobTimes(submit_time=1000.0)
    assert forked == []
