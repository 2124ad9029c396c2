"""Queues this process's Slurm job again, once a preemption has been survived.

Two runs of ``scontrol`` at the end of a run, by rank 0 alone, for at most two seconds each. Slurm
ends the job by that; whoever asks has written everything.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from costlens.observe.placement.slurm_times import TIMEOUT_S, run_scontrol, shown_job

__all__ = ["requeue_job"]

_STATE = re.compile(r"(?:^|\s)JobState=(\S+)")


def requeue_job(environ: Mapping[str, str] | None = None, *, timeout_s: float = TIMEOUT_S) -> str:
    """Queue the job again and return what came of it, for the log.

    A job that is not running any more was cancelled, by a person or by its time limit: it stays so.

    Args:
        environ: The environment; this process's own by default.
        timeout_s: Most seconds for each of two questions, > 0.
    """
    seen = os.environ if environ is None else environ
    job = shown_job(seen)
    if job is None:
        return "this is no job of Slurm"
    shown = run_scontrol(seen, ["show", "job", job, "--oneliner"], timeout_s)
    if shown is None:
        return "scontrol does not answer here"
    states = set(_STATE.findall(shown))
    if states != {"RUNNING"}:
        return f"job {job} is {', '.join(sorted(states)) or 'unknown'}, not RUNNING: it stays so"
    if run_scontrol(seen, ["requeue", job], timeout_s) is None:
        return f"scontrol did not queue job {job} again"
    return f"job {job} is queued again"
