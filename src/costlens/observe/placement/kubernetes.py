"""Kubernetes: which pod of which Job, JobSet or training job, by the downward API.

Variables (``POD_NAME``, ``POD_NAMESPACE``, ``POD_UID``, ``NODE_NAME``, the ``k8s.*`` attributes of
``OTEL_RESOURCE_ATTRIBUTES``) and the files of a downward volume at ``/etc/podinfo`` tell; nothing
asks the API server. ``integrations/kubernetes`` has the templates.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from costlens.core.job_records import JobPart
from costlens.observe.placement.text import cut, read_downward, read_pairs, read_small

__all__ = ["PODINFO", "detect_job", "read_labels"]

PODINFO = Path("/etc/podinfo")
"""Where Kubernetes' own documentation mounts the downward volume."""

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

# The outermost owner first: a JobSet makes Jobs, and a TrainJob makes a JobSet of its own name.
_JOB_LABELS = (
    ("jobset.sigs.k8s.io/jobset-name", "jobset.sigs.k8s.io/jobset-uid"),
    ("training.kubeflow.org/job-name", ""),
    ("batch.kubernetes.io/job-name", "batch.kubernetes.io/controller-uid"),
    ("job-name", "controller-uid"),
)
_TASK_LABELS = (
    ("jobset.sigs.k8s.io/job-global-index", "batch.kubernetes.io/job-completion-index"),
    ("training.kubeflow.org/replica-type", "training.kubeflow.org/replica-index"),
)
_QUEUE = "kueue.x-k8s.io/queue-name"
_RESTARTS = "jobset.sigs.k8s.io/restart-attempt"


def detect_job(environ: Mapping[str, str]) -> JobPart | None:
    """Return the pod that this process runs in and the job that made it, or None elsewhere."""
    told = read_pairs(environ.get("OTEL_RESOURCE_ATTRIBUTES", ""))
    labels = read_labels()
    pod = environ.get("POD_NAME") or told.get("k8s.pod.name") or read_small(PODINFO / "name")
    if pod is None and not labels and "KUBERNETES_SERVICE_HOST" not in environ:
        return None
    name, uid = _find_job(environ, labels, told)
    return JobPart(
        scheduler="kubernetes",
        job_id=cut(name),
        job_uid=cut(uid),
        name=cut(name),
        task=cut(_find_task(environ, labels)),
        queue=cut(labels.get(_QUEUE) or environ.get("KUEUE_QUEUE_NAME")),
        restart_count=_read_count(labels.get(_RESTARTS) or environ.get("JOBSET_RESTART_ATTEMPT")),
        node=cut(environ.get("NODE_NAME") or told.get("k8s.node.name")),
        pod=cut(pod),
        pod_uid=cut(
            environ.get("POD_UID") or told.get("k8s.pod.uid") or read_small(PODINFO / "uid")
        ),
        namespace=cut(
            environ.get("POD_NAMESPACE")
            or told.get("k8s.namespace.name")
            or read_small(PODINFO / "namespace")
            or read_small(_NAMESPACE_FILE)
        ),
        num_gpus=_count_gpus(environ),
    )


def read_labels() -> dict[str, str]:
    """Return the pod's annotations and labels from the downward volume; empty without one."""
    return {**read_downward(PODINFO / "annotations"), **read_downward(PODINFO / "labels")}


def _find_job(
    environ: Mapping[str, str], labels: Mapping[str, str], told: Mapping[str, str]
) -> tuple[str | None, str | None]:
    """Return name and uid of the job that a pod belongs to, where they are told."""
    for name, uid in _JOB_LABELS:
        if labels.get(name):
            return labels[name], labels.get(uid)
    if environ.get("JOBSET_NAME"):
        return environ["JOBSET_NAME"], environ.get("JOBSET_UID")
    name_told = environ.get("JOB_NAME") or told.get("k8s.job.name")
    return name_told, (environ.get("JOB_UID") or told.get("k8s.job.uid")) if name_told else None


def _find_task(environ: Mapping[str, str], labels: Mapping[str, str]) -> str | None:
    for names in _TASK_LABELS:
        parts = [labels[name] for name in names if labels.get(name)]
        if parts:
            return "-".join(parts)
    # The Job controller sets it in every pod of an indexed Job.
    return environ.get("JOB_COMPLETION_INDEX")


def _read_count(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and len(text) < 10 else None


def _count_gpus(environ: Mapping[str, str]) -> int | None:
    """Return the devices that the device plugin gave to this container; None unless it lists them.

    A word such as ``all`` says what the image asks for, not what the pod was given.
    """
    listed = [part for part in environ.get("NVIDIA_VISIBLE_DEVICES", "").split(",") if part.strip()]
    is_given = bool(listed) and all(part.strip().startswith(("GPU-", "MIG-")) for part in listed)
    return min(len(listed), 10_000) if is_given else None
