"""What a rank's record says of a notice that asked it to leave; absent where none came."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from costlens.core.part import Part

__all__ = ["PreemptionPart", "Uncovered"]

Uncovered = Literal["no_time", "no_boundary", "save_incomplete", "given_up"]
"""Why steps were left behind: the save did not fit into the grace; training came to no boundary;
the save did not become durable in time; a second signal came."""


class PreemptionPart(Part):
    """How an attempt left when it was asked to: the mark of a clean exit, or of what it lost."""

    reason: Annotated[str, Field(max_length=100)] = Field(
        description="What asked for it: a signal, or a notice of the cloud such as aws:terminate."
    )
    time: float = Field(description="Unix time at which this rank heard of it.")
    grace_s: float = Field(description="Seconds it had from then on.")
    step: int | None = Field(None, description="Optimizer step at which it left.")
    is_covered: bool = Field(description="Whether every step that was done is in a checkpoint.")
    uncovered_because: Uncovered | None = None
