"""Where a rank runs and what its job waited for it, as attributes of metrics and spans.

The wait is the job's: rank 0 alone tells it, and only for the launch that the allocation was made
for.
"""

from __future__ import annotations

from costlens.account.queue import Wait, measure_wait
from costlens.core.job_records import JobPart
from costlens.core.records import RankRecord

__all__ = ["JOB_ATTRIBUTES", "find_wait", "job_attributes", "queue_attributes"]

JOB_ATTRIBUTES = {
    "costlens.scheduler": "scheduler",
    "costlens.job.id": "job_id",
    "costlens.job.queue": "queue",
    "costlens.job.node": "node",
    "costlens.capacity.type": "capacity_type",
    "k8s.pod.name": "pod",
    "k8s.namespace.name": "namespace",
    "cloud.provider": "provider",
    "cloud.region": "region",
}
"""Attributes that say where a rank runs, by the field of the record's job."""


def job_attributes(job: JobPart | None) -> dict[str, str]:
    """Return where a rank runs, as attributes; what nobody tells is left out."""
    if job is None:
        return {}
    values = {name: getattr(job, field) for name, field in JOB_ATTRIBUTES.items()}
    return {name: value for name, value in values.items() if value}


def find_wait(record: RankRecord) -> Wait | None:
    """Return what the job waited before this attempt; None where another rank or none tells it."""
    job = record.job
    if job is None or record.rank.rank != 0 or not job.is_allocation_owner:
        return None
    return measure_wait(job.submit_time, job.eligible_time, job.start_time)


def queue_attributes(record: RankRecord) -> dict[str, float | None]:
    """Return the wait and what deferred the job before, in seconds; empty where it is not told."""
    wait = find_wait(record)
    if wait is None:
        return {}
    return {"costlens.queue.wait": wait.wait_s, "costlens.queue.deferral": wait.deferral_s}
