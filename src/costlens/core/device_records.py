"""The GPUs in the records: what a rank says of its own devices, and what readers make of all.

``account/device_meter.py`` fills a :class:`GpuPart` per device, ``observe/nvml.py`` puts them into
the rank's record, and ``account/gpus.py`` merges them. As in ``core/records.py`` absent means
unknown, never zero; why a device does not offer a field stands in ``absent``.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from costlens.core.part import Part, Ratio, Tally

__all__ = ["MAX_GPUS", "GpuDevice", "GpuDriverPart", "GpuPart", "GpuSummary"]

MAX_GPUS = 16
"""Most devices that the record of one rank describes; the largest nodes have as many."""

Number = Annotated[float, Field(ge=0, lt=1e18, allow_inf_nan=False)]
Celsius = Annotated[float, Field(ge=-273.15, lt=1000, allow_inf_nan=False)]
Name = Annotated[str, Field(max_length=100)]

EnergySource = Literal["counter", "power", "both"]


class GpuPart(Part):
    """One device of a rank in one attempt: its newest values, and sums since the attempt began.

    Sums grow only over time in which the device could be read: a mean is a sum over its seconds,
    such as ``busy_s / utilization_s``.
    """

    uuid: Name
    name: Name | None = None
    serial: Name | None = None
    pci_id: Name | None = Field(
        None, description="Domain, bus and device, such as 00000000:17:00.0."
    )
    parent_uuid: Name | None = Field(None, description="The GPU that a MIG device is a slice of.")
    mig_slices: Tally | None = Field(None, description="Compute slices of a MIG device.")
    is_simulated: bool = Field(False, description="Whether a stand-in driver made it up.")
    is_lost: bool = Field(
        False, description="Whether the driver has lost it; nothing is newest then."
    )
    num_losses: Tally = 0

    utilization: Ratio | None = Field(None, description="Share of the time in which it was busy.")
    memory_utilization: Ratio | None = Field(
        None, description="Share of the time in which its memory was read or written."
    )
    memory_used_bytes: Tally | None = Field(None, description="In use by all processes on it.")
    memory_total_bytes: Tally | None = None
    memory_peak_bytes: Tally | None = Field(None, description="Most that a sample found in use.")
    own_memory_bytes: Tally | None = Field(
        None,
        description="In use by this process; absent where the driver's process ids are not ours.",
    )
    is_shared: bool | None = Field(
        None, description="Whether other processes compute on it, where the driver tells."
    )
    power_watts: Number | None = None
    power_limit_watts: Number | None = None
    temperature_celsius: Celsius | None = None
    memory_temperature_celsius: Celsius | None = None
    sm_clock_hertz: Number | None = None
    memory_clock_hertz: Number | None = None
    sm_clock_max_hertz: Number | None = Field(None, description="The highest that it can run at.")
    activity: dict[Name, Ratio] = Field(
        default_factory=dict,
        description="Newest share of what each unit could do: sm, tensor, dram.",
    )

    sampled_s: Number = Field(0.0, description="Seconds between samples that found it.")
    busy_s: Number = Field(0.0, description="The utilization, added up over time.")
    utilization_s: Number = Field(0.0, description="Seconds in which the utilization was known.")
    activity_busy_s: dict[Name, Number] = Field(
        default_factory=dict, description="The activity of each unit, added up over time."
    )
    activity_s: Number = Field(0.0, description="Seconds in which the activity was known.")
    energy_joules: Number | None = None
    energy_source: EnergySource | None = Field(
        None,
        description="The device's energy counter, its power added up over time, or both in turn.",
    )
    energy_s: Number = Field(0.0, description="Seconds that the energy accounts for.")
    throttle_s: dict[Name, Number] | None = Field(
        None, description="Seconds in which its clocks were held down, by reason; reasons overlap."
    )
    throttle_loss_s: Number | None = Field(
        None,
        description="Of each second that heat or the power supply held its clock down, the share "
        "by which it stood below its highest, added up.",
    )
    io_bytes: dict[Name, Tally] = Field(
        default_factory=dict, description="Traffic by link and direction, such as pcie_receive."
    )
    errors: dict[Name, Tally] = Field(
        default_factory=dict, description="Errors by kind, since the attempt began."
    )
    last_xid: Tally | None = Field(None, description="The newest error code of the driver.")
    is_remap_pending: bool | None = Field(
        None, description="Whether memory rows wait for a reset to be remapped."
    )
    absent: dict[Name, Name] = Field(
        default_factory=dict, description="Why a field is not there, such as not_supported."
    )


class GpuDriverPart(Part):
    """How the rank sees the driver of its GPUs."""

    state: Literal["ok", "unavailable"] = "unavailable"
    reason: Name | None = Field(None, description="Why nothing is known, such as no_library.")
    driver_version: Name | None = None
    nvml_version: Name | None = None
    cuda_version: Name | None = Field(
        None, description="The newest CUDA that the driver can serve."
    )
    order: Literal["torch", "uuid", "pci", "assumed"] | None = Field(
        None,
        description="How the rank's devices were told apart: torch named them, the variable named "
        "their UUIDs, the PCI order was asked for, or it was assumed.",
    )
    problems: list[Name] = Field(default_factory=list, max_length=16)
    num_samples: Tally = 0


class GpuDevice(GpuPart):
    """One device of a run, with who drives it."""

    host_name: str
    ranks: list[int] = Field(description="Ranks that share it; its numbers are counted once.")


class GpuSummary(Part):
    """All devices of a run; sums count a device that several ranks share once."""

    num_devices: int | None = Field(None, description="Devices of the newest attempt.")
    is_simulated: bool = Field(False, description="Whether any device was made up.")
    unknown: str | None = Field(None, description="Why nothing is known of the devices.")
    is_partial: bool = Field(
        False, description="Whether ranks that drive GPUs, or devices, could not tell their energy."
    )
    energy_joules: float | None = Field(None, description="Over all attempts.")
    energy_by_attempt: dict[str, float] = Field(default_factory=dict)
    energy_sources: list[str] = Field(default_factory=list)
    utilization: float | None = Field(None, description="Mean over time, devices and attempts.")
    activity: dict[str, float] = Field(default_factory=dict)
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_watts: float | None = Field(None, description="Newest power of all devices together.")
    power_limit_watts: float | None = None
    throttle_s: dict[str, float] = Field(default_factory=dict)
    io_bytes: dict[str, int] = Field(default_factory=dict)
    errors: dict[str, int] = Field(default_factory=dict)
    devices: list[GpuDevice] = Field(
        default_factory=list, description="The devices of the newest attempt."
    )
