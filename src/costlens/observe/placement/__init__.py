"""Where this process stands in its job, as launcher and scheduler tell it; one file each.

Launchers are tried in the order of ``DETECTORS``; ``job.py`` asks the schedulers. run.py asks once,
when a run opens.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping

from costlens.core.job_records import JobPart
from costlens.observe.placement import lightning, ray, single, slurm, torchrun
from costlens.observe.placement.job import detect_job, identify
from costlens.observe.placement.place import Placement
from costlens.observe.placement.process_group import refine_placement

__all__ = ["DETECTORS", "detect_placement"]

DETECTORS: tuple[Callable[[Mapping[str, str]], Placement | None], ...] = (
    ray.detect,
    torchrun.detect,
    lightning.detect,
    slurm.detect,
    single.detect,
)


def detect_placement(environ: Mapping[str, str] | None = None) -> Placement:
    """Return the placement of this process, from the first launcher that knows the environment.

    In this process's own environment a process group of torch.distributed has the last word on
    ranks.

    Args:
        environ: The environment to read; this process's own by default.
    """
    seen = os.environ if environ is None else environ
    placement = _complete(_from_environ(seen), seen)
    if environ is None:
        placement = refine_placement(placement)
    job = detect_job(seen)
    return dataclasses.replace(
        placement,
        job=job,
        job_id=identify(job, placement.world_size),
        launch_key=_tell_start(placement, job, seen),
    )


def _tell_start(placement: Placement, job: JobPart | None, seen: Mapping[str, str]) -> str | None:
    """Return the launch key with the start of the job, where the launcher repeats its key.

    A job that is made again has the same addresses, and fixed ports. Not under torchelastic, whose
    keys are new, and whose agents may belong to several jobs.
    """
    is_plain = placement.launcher == "torchrun" and "TORCHELASTIC_RUN_ID" not in seen
    if not is_plain or job is None or not job.restart_count or job.scheduler == "slurm":
        return placement.launch_key
    return f"{placement.launch_key}/start {job.restart_count}"


def _from_environ(seen: Mapping[str, str]) -> Placement:
    for detect in DETECTORS:
        placement = detect(seen)
        if placement is not None:
            return placement
    return Placement()


def _complete(placement: Placement, seen: Mapping[str, str]) -> Placement:
    """Return the placement with what Slurm knows and a script that sets RANK itself leaves out.

    Such a script takes rank and world from srun and keeps one port for ever: node and launch are
    srun's.
    """
    if placement.launcher != "torchrun" or "TORCHELASTIC_RUN_ID" in seen:
        return placement
    step = slurm.detect(seen)
    if step is None or (step.rank, step.world_size) != (placement.rank, placement.world_size):
        return placement
    if "LOCAL_WORLD_SIZE" in seen:
        return dataclasses.replace(placement, launch_key=step.launch_key)
    return dataclasses.replace(
        placement,
        launch_key=step.launch_key,
        local_rank=step.local_rank,
        node_rank=step.node_rank,
        local_world_size=step.local_world_size,
    )
