"""Ray: its Train library gives workers the variables that torchrun gives, and Ray adds its job."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from costlens.core.job_records import JobPart
from costlens.observe.placement import torchrun
from costlens.observe.placement.place import Placement
from costlens.observe.placement.text import cut

__all__ = ["detect", "detect_job"]

_NIL_JOB = "ffffffff"


def detect(environ: Mapping[str, str]) -> Placement | None:
    """Return the placement of a worker of Ray Train, or None; torchrun inside Ray is torchrun."""
    if "RAY_JOB_ID" not in environ or "TORCHELASTIC_RUN_ID" in environ:
        return None
    found = torchrun.detect(environ)
    return None if found is None else dataclasses.replace(found, launcher="ray")


def detect_job(environ: Mapping[str, str]) -> JobPart | None:
    """Return Ray's job, or None outside Ray.

    ``RAY_JOB_ID`` counts from 1 in every cluster; a submission id, where the job was given its
    own, is one of a kind.
    """
    counted, submitted = environ.get("RAY_JOB_ID"), environ.get("RAY_JOB_SUBMISSION_ID")
    if not counted and not submitted:
        return None
    job_id = submitted or (None if counted == _NIL_JOB else counted)
    return JobPart(scheduler="ray", job_id=cut(job_id), job_uid=cut(submitted))
