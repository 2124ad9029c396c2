"""What a rank's record says of checkpoints; None means unknown."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from costlens.core.part import Part

__all__ = ["CheckpointsPart", "IntervalPart", "SaveNote"]


@dataclass(frozen=True, slots=True)
class SaveNote:
    """One save that has ended, for whoever tells of it; monotonic nanoseconds.

    Args:
        name: The checkpoint.
        step: Its step.
        kind: What asked for it: the interval, the end, a preemption or the user.
        start_ns: When training stood still for it.
        stall_ns: For how long.
        write_ns: How long after that it was durable, or had failed.
        num_bytes: Bytes that this rank has stored for it; None where it failed.
        error_type: What failed; None for a checkpoint that exists.
    """

    name: str
    step: int
    kind: str
    start_ns: int
    stall_ns: int
    write_ns: int
    num_bytes: int | None
    error_type: str | None = None


class IntervalPart(Part):
    """Why the next save comes when it does."""

    interval_s: float = Field(description="Seconds between two snapshots.")
    optimum_s: float = Field(description="What would cost the least, before the limits.")
    rail: str = Field(description="What set it: the optimum, or the limit that was in the way.")
    worst_loss_s: float = Field(description="Most seconds of work that a failure can lose.")
    is_loss_kept: bool = Field(description="Whether that is within the limit the user set.")
    failure_rate_per_s: float
    stall_s: float = Field(description="Seconds that training stands still for one save.")
    write_s: float = Field(description="Seconds from a snapshot until it is durable.")
    slowdown: float = Field(description="Share by which steps are slower beside a write.")


class CheckpointsPart(Part):
    """The saves of one attempt, and what a failure would cost now."""

    url: str = Field(description="Where they go, without credentials.")
    num_saved: int = 0
    num_failed: int = 0
    num_skipped: int = Field(0, description="Saves that were due while another was written.")
    num_retries: int = 0
    num_bytes: int = Field(
        0, description="Bytes that this rank has in the newest checkpoint, with their description."
    )
    stall_s: float = Field(0.0, description="Seconds that training stood still, all saves.")
    write_s: float = Field(0.0, description="Seconds until durable, all saves.")
    last_step: int | None = Field(None, description="Step of the newest checkpoint that exists.")
    last_time: float | None = Field(None, description="Unix time at which it was taken.")
    last_name: str | None = None
    last_error_type: str | None = None
    next_step: int | None = Field(None, description="Step about which the next save is due.")
    interval: IntervalPart | None = None
    resumed_from: str | None = Field(None, description="Name of the checkpoint it resumed from.")
    resumed_step: int | None = None
    resumed_attempt: int | None = Field(None, description="The attempt that saved it.")
    rejected: list[str] = Field(
        default_factory=list, description="What the resume passed over, and why."
    )
    inexact: list[str] = Field(
        default_factory=list, description="What could not be restored exactly."
    )
