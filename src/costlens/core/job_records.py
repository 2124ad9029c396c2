"""The part of a record that says in which job of a scheduler a rank runs, and since when.

``observe/placement/`` detects it, ``observe/allocation.py`` adds the times that only the scheduler
knows, ``account/queue.py`` makes waiting times of it. Unix seconds are the scheduler's clock, which
need not agree with this host's.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from costlens.core.part import Part, UnixTime

__all__ = ["MAX_TEXT", "MAX_WAITS", "JobPart", "QueuePart", "WaitPart"]

MAX_WAITS = 60
"""Most waits that the merged record lists; the sums hold all."""

MAX_TEXT = 200
"""Most characters of a name that a scheduler gives; what is longer is cut where it is read."""

Text = Annotated[str, Field(max_length=MAX_TEXT)]


class JobPart(Part):
    """Which job of which scheduler this is; absent fields were not told."""

    scheduler: Text = Field(description="slurm, kubernetes, ray, or other where only times are.")
    cluster: Text | None = None
    job_id: Text | None = Field(None, description="The scheduler's id: what its own tools take.")
    job_uid: Text | None = Field(
        None, description="What tells two jobs of one name apart, where names can come again."
    )
    name: Text | None = None
    task: Text | None = Field(
        None, description="Task of a Slurm array, or completion index of an indexed Job."
    )
    step: Text | None = Field(None, description="Step of a Slurm job, as srun counts them.")
    queue: Text | None = Field(None, description="Slurm partition, or Kueue's local queue.")
    restart_count: int | None = Field(
        None, ge=0, description="How often the scheduler started the job again."
    )
    submit_time: UnixTime | None = Field(
        None, description="When the job was submitted, or queued again."
    )
    eligible_time: UnixTime | None = Field(
        None, description="When nothing but resources and priority held it back any more."
    )
    start_time: UnixTime | None = Field(None, description="When the allocation began.")
    times_from: Text | None = Field(
        None, description="Who told these times: environment, settings or scontrol."
    )
    times_unknown: Text | None = Field(None, description="Why times are missing.")
    clock_skew_s: float | None = Field(
        None,
        ge=0,
        lt=1e12,
        allow_inf_nan=False,
        description="Seconds by which times of the scheduler and of this host contradict.",
    )
    is_allocation_owner: bool | None = Field(
        None,
        description="Whether this launch was the first in its allocation, and so carries its wait "
        "and its start; absent while that is not settled.",
    )
    node: Text | None = Field(None, description="The node, as the scheduler calls it.")
    pod: Text | None = None
    pod_uid: Text | None = None
    namespace: Text | None = None
    provider: Text | None = Field(None, description="Cloud provider, such as aws or gcp.")
    region: Text | None = None
    instance_type: Text | None = Field(None, description="Kind of machine, as the cloud calls it.")
    capacity_type: Text | None = Field(
        None, description="on_demand, spot or reserved, where it is told."
    )
    num_gpus: int | None = Field(
        None, ge=0, le=10_000, description="GPUs of this node that the job may use."
    )


class WaitPart(Part):
    """One wait of a job in its scheduler's queue, before an allocation began."""

    attempt: int = Field(description="The attempt that the wait went before.")
    job_id: Text | None = None
    queue: Text | None = None
    submit_time: UnixTime | None = None
    eligible_time: UnixTime | None = None
    start_time: UnixTime
    wait_s: float = Field(
        ge=0,
        description="Eligible to start: for resources and priority; from submission where "
        "nobody tells since when the job was eligible.",
    )
    deferral_s: float | None = Field(
        None, ge=0, description="Submitted to eligible: holds, dependencies, a begin time."
    )
    counted_from: Literal["eligible", "submit"]
    is_contradictory: bool = Field(
        False, description="Whether times go backwards, so that a part of the wait counts as 0."
    )


class QueuePart(Part):
    """What the job waited for its allocations, over all of them; nothing of it is paid for."""

    wait_s: float | None = Field(
        None, description="Sum of the waits for resources and priority; null when unknown."
    )
    deferral_s: float | None = Field(
        None, description="Sum of the deferrals that are known; null when none is."
    )
    num_waits: int = Field(0, description="Allocations whose wait is known.")
    unknown: str | None = Field(None, description="Why waits are missing.")
    waits: list[WaitPart] = Field(
        default_factory=list, max_length=MAX_WAITS, description="The newest waits, in order."
    )
