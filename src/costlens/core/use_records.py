"""How busy a rank's GPUs and host were in one window, as it stands in a segment.

The record holds the newest values and sums over the attempt; only windows tell how they went over
time. ``account/use.py`` fills it, the report page draws it. Absent means unknown, never zero.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from costlens.core.part import Part

__all__ = ["UsePart"]

Number = Annotated[float, Field(ge=0, lt=1e18, allow_inf_nan=False)]
Ratio = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class UsePart(Part):
    """The use of a rank's own devices, and of its machine where the rank speaks for that."""

    gpu_utilization: Ratio | None = Field(
        None, description="Share of the window in which its GPUs were busy, mean over them."
    )
    gpu_memory_ratio: Ratio | None = Field(
        None, description="Share of their memory in use at the end of the window."
    )
    gpu_power_watts: Number | None = Field(
        None, description="Mean power over the window, all its GPUs together."
    )
    cpu_ratio: Ratio | None = Field(
        None, description="Busy share of the CPUs the rank may use; from local rank 0 only."
    )
    memory_ratio: Ratio | None = Field(
        None, description="Share of the memory it may use; from local rank 0 only."
    )
    loader_cpus: Number | None = Field(None, description="CPUs its loader workers kept busy.")
