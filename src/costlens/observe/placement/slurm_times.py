"""Asks Slurm when a job was submitted, eligible and started: no variable tells all of that.

One run of ``scontrol`` on the pipeline thread, by rank 0 alone, for at most two seconds. The
process is spawned and never forked, and writes into memory instead of a pipe: a loader worker that
is forked at that moment would inherit the ends of a pipe and keep it open (docs/decisions/0007).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

__all__ = ["TIMEOUT_S", "JobTimes", "ask_times", "parse_times", "run_scontrol", "shown_job"]

TIMEOUT_S = 2.0
_KILL_S = 0.5
_MAX_BYTES = 1024 * 1024

_FIELD = re.compile(r"(?:^|\s)(JobId|SubmitTime|EligibleTime|StartTime|RunTime)=(\S+)")
_RUN_TIME = re.compile(r"(?:(\d{1,6})-)?(\d{1,2}):(\d{2}):(\d{2})")


class JobTimes(NamedTuple):
    """When a job was submitted, eligible and started, in Unix seconds of the scheduler.

    Args:
        submit_time: The submission, or when it was queued again.
        eligible_time: From when on only resources and priority held it back.
        start_time: The begin of the allocation.
        run_time_s: Seconds since then by the scheduler's own clock, at the moment of asking.
    """

    submit_time: float | None = None
    eligible_time: float | None = None
    start_time: float | None = None
    run_time_s: float | None = None


def ask_times(
    environ: Mapping[str, str] | None = None, *, timeout_s: float = TIMEOUT_S
) -> JobTimes | str:
    """Return the times of this process's job, or why they are not known; pipeline thread.

    Args:
        environ: The environment; this process's own by default.
        timeout_s: Most seconds to wait for an answer, > 0.
    """
    seen = os.environ if environ is None else environ
    job_id, shown = seen.get("SLURM_JOB_ID", ""), shown_job(seen) or ""
    if _find_scontrol(seen) is None:
        return "scontrol is not installed here"
    question = ["show", "job", shown, "--oneliner"]
    answer = run_scontrol({**seen, "SLURM_TIME_FORMAT": "%s"}, question, timeout_s)
    if answer is None:
        return f"scontrol did not answer within {timeout_s:g} s"
    return parse_times(answer, job_id) or f"scontrol does not know job {shown}"


def parse_times(text: str, job_id: str) -> JobTimes | None:
    """Return the times that ``scontrol show job --oneliner`` shows of a job, or None.

    Args:
        text: One job a line, times in Unix seconds or in this machine's local time.
        job_id: The job; a heterogeneous one shows several.
    """
    for line in text.splitlines():
        fields: dict[str, str] = {}
        for name, value in _FIELD.findall(line):
            fields.setdefault(name, value)
        if fields.get("JobId") == job_id:
            return JobTimes(
                submit_time=_parse_time(fields.get("SubmitTime")),
                eligible_time=_parse_time(fields.get("EligibleTime")),
                start_time=_parse_time(fields.get("StartTime")),
                run_time_s=_parse_run_time(fields.get("RunTime")),
            )
    return None


def shown_job(environ: Mapping[str, str]) -> str | None:
    """Return by what scontrol knows the job of these variables alone; None without a job."""
    # The id of an array's last task is the array's, and would show them all.
    array, task = environ.get("SLURM_ARRAY_JOB_ID"), environ.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{task}" if array and task else environ.get("SLURM_JOB_ID")


def run_scontrol(environ: Mapping[str, str], arguments: list[str], timeout_s: float) -> str | None:
    """Return what scontrol writes, or None where there is none, or it takes too long.

    Args:
        environ: Its environment, and where it is looked for.
        arguments: What it is to do.
        timeout_s: Most seconds to wait, > 0.
    """
    program = _find_scontrol(environ)
    return None if program is None else _run([program, *arguments], environ, timeout_s)


def _find_scontrol(environ: Mapping[str, str]) -> str | None:
    return shutil.which("scontrol", path=environ.get("PATH"))


def _run(command: list[str], environ: Mapping[str, str], timeout_s: float) -> str | None:
    """Return what a program writes, or None where it fails or takes too long."""
    output = os.memfd_create("costlens-scontrol")
    try:
        # Without close_fds CPython calls posix_spawn: no handler for forks runs, no pipe is made.
        process = subprocess.Popen(  # noqa: S603 - the command is ours
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.DEVNULL,
            close_fds=False,
            env=dict(environ),
        )
        if not _wait(process, timeout_s):
            process.kill()
            _wait(process, _KILL_S)  # one that the kernel keeps is left to it
            return None
        return os.pread(output, _MAX_BYTES, 0).decode("utf-8", "replace")
    except OSError:
        return None
    finally:
        os.close(output)


def _wait(process: subprocess.Popen[bytes], timeout_s: float) -> bool:
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout_s)
    return process.returncode is not None


def _parse_time(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        moment = float(text) if text.isdecimal() else datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):  # Unknown, N/A, None, or no date
        return None
    return moment if 0 < moment < 253_402_300_800 else None  # to the year 9999


def _parse_run_time(text: str | None) -> float | None:
    match = _RUN_TIME.fullmatch(text or "")
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
