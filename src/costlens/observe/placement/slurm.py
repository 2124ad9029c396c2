"""Slurm: ranks from the step that srun launched, facts of the job from any of its processes.

A batch script that starts Python without srun is one task, whatever the allocation holds; torchrun
or Lightning inside it tell their own ranks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from costlens.core.job_records import JobPart
from costlens.observe.placement.place import Placement, read_int
from costlens.observe.placement.text import cut, read_time

__all__ = ["allocation_of", "detect", "detect_job"]

# Steps that no srun has launched (batch, interactive, extern) have the highest numbers.
_FIRST_SPECIAL_STEP = 0xFFFF_FFF0
_GROUP = re.compile(r"(\d{1,9})(?:\(x(\d{1,9})\))?")


def detect(environ: Mapping[str, str]) -> Placement | None:
    """Return the placement of a task that srun launched, or None."""
    step = environ.get("SLURM_STEP_ID", "")
    if not step.isdecimal() or int(step) >= _FIRST_SPECIAL_STEP or "SLURM_PROCID" not in environ:
        return None
    world_size = read_int(environ, "SLURM_STEP_NUM_TASKS") or read_int(environ, "SLURM_NTASKS")
    node_rank = read_int(environ, "SLURM_NODEID")
    tasks = _read_tasks(environ.get("SLURM_STEP_TASKS_PER_NODE", ""), node_rank)
    return Placement(
        launcher="slurm",
        launch_key=f"slurm/{allocation_of(environ)}/{step}",
        rank=read_int(environ, "SLURM_PROCID"),
        local_rank=read_int(environ, "SLURM_LOCALID"),
        node_rank=node_rank,
        world_size=max(1, world_size),
        local_world_size=min(max(1, tasks), max(1, world_size)),
    )


def detect_job(environ: Mapping[str, str]) -> JobPart | None:
    """Return the job that this process runs in, or None outside Slurm.

    Only newer releases (23.02) tell when the allocation began, and none when the job was submitted:
    ``slurm_times.py`` asks for that.
    """
    job_id = environ.get("SLURM_JOB_ID", "")
    if not job_id.isdecimal():
        return None
    start_time = read_time(environ.get("SLURM_JOB_START_TIME"))
    return JobPart(
        scheduler="slurm",
        cluster=cut(environ.get("SLURM_CLUSTER_NAME")),
        job_id=cut(job_id),
        name=cut(environ.get("SLURM_JOB_NAME")),
        task=cut(environ.get("SLURM_ARRAY_TASK_ID")),
        step=cut(environ.get("SLURM_STEP_ID")),
        queue=cut(environ.get("SLURM_JOB_PARTITION")),
        restart_count=read_int(environ, "SLURM_RESTART_COUNT"),
        start_time=start_time,
        times_from=None if start_time is None else "environment",
        node=cut(environ.get("SLURMD_NODENAME")),
        num_gpus=_read_gpus(environ),
    )


def allocation_of(environ: Mapping[str, str]) -> str:
    """Return what all processes of one allocation share: a job queued again gets another one."""
    restart_count = read_int(environ, "SLURM_RESTART_COUNT")
    return f"{environ.get('SLURM_CLUSTER_NAME', '')}/{environ.get('SLURM_JOB_ID')}/{restart_count}"


def _read_gpus(environ: Mapping[str, str]) -> int | None:
    text = environ.get("SLURM_GPUS_ON_NODE", "")
    return min(int(text), 10_000) if text.isdecimal() else None


def _read_tasks(text: str, node_rank: int) -> int:
    """Return the tasks of a node from Slurm's short form, such as ``4(x2),1``."""
    first = 0
    for group in text.split(","):
        match = _GROUP.fullmatch(group.strip())
        if match is None:
            return 1
        first += int(match[2] or 1)
        if node_rank < first:
            return int(match[1])
    return 1
