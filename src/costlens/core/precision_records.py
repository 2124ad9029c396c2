"""What the records say of the precision of a training, and of the steps it could not make.

Doors say what was chosen, ``observe/precision_watch.py`` adds what came of it, and
``account/precision.py`` merges it over ranks and attempts. As in ``core/records.py`` None means
unknown.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from costlens.core.part import Part, Seconds

__all__ = ["PrecisionPart", "PrecisionSummary"]

Count = Annotated[int, Field(ge=0)]
Scale = Annotated[float, Field(ge=0, lt=1e40, allow_inf_nan=False)]
Text = Annotated[str, Field(max_length=300)]


class PrecisionPart(Part):
    """What one rank computes in, and why; present where it was chosen, or known otherwise."""

    requested: Literal["off", "auto", "bf16", "fp16", "fp32"]
    effective: Annotated[str, Field(max_length=40)] | None = Field(
        None,
        description="`bf16`, `fp16` (both mixed with fp32) or `fp32`, else what the framework "
        "calls it; null where nobody tells.",
    )
    reason: Text
    skipped_steps: Count | None = Field(
        None, description="Optimizer steps that overflowed and were left out."
    )
    skipped_s: Seconds | None = Field(
        None,
        description="Time of the iterations that led to them: of each second, the share that "
        "these steps are of its steps.",
    )
    loss_scale: Scale | None = Field(
        None, description="What gradients are multiplied with, read once a second and at the end."
    )
    min_loss_scale: Scale | None = None
    max_loss_scale: Scale | None = None


class PrecisionSummary(PrecisionPart):
    """The precision of the newest attempt, and what skipped steps cost over all of them."""

    skipped_cost: str | None = Field(
        None,
        description="Money for skipped_s, a decimal string in the currency of cost; null when "
        "unknown.",
    )
