"""The scheduler's job, put together from everyone who knows a part of it.

A launcher gives ranks, a scheduler facts: torchrun inside Slurm inside a pod is no contradiction,
and each fact is taken from the innermost scheduler that tells it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from costlens.core.job_records import JobPart
from costlens.observe.placement import cloud, kubernetes, ray, slurm

__all__ = ["JOB_DETECTORS", "detect_job", "identify"]

JOB_DETECTORS: tuple[Callable[[Mapping[str, str]], JobPart | None], ...] = (
    slurm.detect_job,
    ray.detect_job,
    kubernetes.detect_job,
)

_UID_CHARS = 8


def detect_job(environ: Mapping[str, str]) -> JobPart | None:
    """Return the job that this process runs in, or None outside every scheduler.

    Reads a few small files; no network.

    Args:
        environ: The environment.
    """
    found = [job for detect in JOB_DETECTORS if (job := detect(environ)) is not None]
    if not found:
        return None
    merged: dict[str, object] = {}
    for job in found:
        known = job.model_dump(exclude_none=True)
        # The job id of one scheduler and the uid of another would name no job at all.
        if "job_id" in merged:
            for name in ("job_uid", "restart_count", "task"):
                known.pop(name, None)
        merged = {**known, **merged}
    facts = cloud.find_cloud(environ, kubernetes.read_labels())
    known_facts = {name: value for name, value in facts.items() if value is not None}
    return JobPart.model_validate({**known_facts, **merged})


def identify(job: JobPart | None, world_size: int) -> str | None:
    """Return what a job contributes to the identity of a run, or None.

    The same for all ranks and over restarts. A job of Kubernetes may come again under its name, so
    its uid is added where it is told; Ray's own counter starts again with every cluster. Where each
    process trains alone, so does each task of an indexed Job.

    Args:
        job: The job.
        world_size: Ranks of the launch.
    """
    if job is None:
        return None
    if job.scheduler == "ray":
        return job.job_uid
    if job.job_id is None:
        return job.pod_uid if world_size == 1 else None
    parts = [job.job_id]
    if job.job_uid is not None:
        parts.append(job.job_uid[:_UID_CHARS])
    if job.scheduler == "kubernetes" and world_size == 1 and job.task is not None:
        parts.append(job.task)
    return "-".join(parts)
