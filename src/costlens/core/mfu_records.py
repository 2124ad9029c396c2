"""What MFU is made of in a rank's record, and what it is in the merged one.

``account/mfu.py`` fills both. As in ``core/records.py`` absent means unknown, never zero.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from costlens.core.part import Part

__all__ = ["FlopsPart", "MfuPart"]

Flops = Annotated[float, Field(ge=0, lt=1e40, allow_inf_nan=False)]
Text = Annotated[str, Field(max_length=300)]


class FlopsPart(Part):
    """A rank's work and the peak of its devices; present only where somebody asked for MFU."""

    per_token: Flops | None = Field(
        None, description="FLOPs of forward and backward for one token."
    )
    per_step: Flops | None = Field(
        None, description="FLOPs of one optimizer step of all ranks together."
    )
    is_estimate: bool = Field(False, description="Whether per_token is 6 × parameters.")
    peak_flops_per_s: Flops | None = Field(
        None, description="Dense FLOP/s that one device can make at most."
    )
    precision: Text | None = Field(None, description="The precision that this peak is of.")
    peak_source: Text | None = None
    unknown: Text | None = Field(None, description="Why there is no MFU.")


class MfuPart(Part):
    """The model FLOPs utilization of the newest attempt."""

    ratio: float | None = Field(
        None, description="Work of the model over the devices' peak, 0 to 1; null when unknown."
    )
    unknown: str | None = Field(None, description="Why not, where somebody asked for it.")
    achieved_flops_per_s: float | None = None
    peak_flops_per_s: float | None = Field(None, description="Of all devices together.")
    is_estimate: bool = Field(False, description="Whether the FLOPs are 6 × parameters × tokens.")
    precision: str | None = None
    peak_sources: list[str] = Field(default_factory=list)
