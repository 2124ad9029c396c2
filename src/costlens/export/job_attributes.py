"""Where a rank runs, as attributes of metrics and spans: its job, pod, node and cloud."""

from __future__ import annotations

from costlens.core.job_records import JobPart

__all__ = ["JOB_ATTRIBUTES", "job_attributes"]

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
