"""The page of the metric catalogue on GPUs; the names are OpenTelemetry's where it has one."""

from __future__ import annotations

from collections.abc import Mapping

from costlens.core.device_records import GpuPart
from costlens.export import gpu_readings as read
from costlens.export.metric import Metric

__all__ = ["GPU_METRICS"]

# Of a rank's devices: told by each, or once for all of them.
_DEVICE: Mapping[str, tuple[str, ...]] = {"hw.id": (), read.SIMULATED: read.SIMULATED_ONLY}
_TYPED: Mapping[str, tuple[str, ...]] = {**_DEVICE, "hw.type": ("gpu",)}
_EACH = {"hw.id": read.MAX_DEVICES}
_DIRECTIONS = ("receive", "transmit")


def _io(link: str) -> read.GetMany:
    def get(gpu: GpuPart) -> Mapping[str, float]:
        found = {way: gpu.io_bytes.get(f"{link}_{way}") for way in _DIRECTIONS}
        return {way: value for way, value in found.items() if value is not None}

    return get


GPU_METRICS: tuple[Metric, ...] = (
    Metric(
        "hw.gpu.utilization",
        "gauge",
        "1",
        "Share of the time in which the GPU was busy with any kernel.",
        read.by_device(lambda gpu: gpu.utilization),
        _DEVICE,
        num_own=_EACH,
    ),
    Metric(
        "hw.gpu.memory.usage",
        "updowncounter",
        "By",
        "GPU memory in use by all processes on the device.",
        read.by_device(lambda gpu: gpu.memory_used_bytes),
        _DEVICE,
        num_own=_EACH,
    ),
    Metric(
        "hw.gpu.memory.limit",
        "updowncounter",
        "By",
        "Memory of the GPU.",
        read.by_device(lambda gpu: gpu.memory_total_bytes),
        _DEVICE,
        num_own=_EACH,
    ),
    Metric(
        "hw.power",
        "gauge",
        "W",
        "Power that the GPU draws.",
        read.by_device(lambda gpu: gpu.power_watts, hw_type="gpu"),
        _TYPED,
        num_own=_EACH,
    ),
    Metric(
        "hw.energy",
        "counter",
        "J",
        "Energy of the GPU since the attempt began; the record says how it was measured.",
        read.by_device(lambda gpu: gpu.energy_joules, hw_type="gpu"),
        _TYPED,
        num_own=_EACH,
    ),
    Metric(
        "hw.temperature",
        "gauge",
        "Cel",
        "Temperature of the chip and of its memory; the hottest where a rank drives several GPUs.",
        read.detail(
            "hw.sensor_location",
            read.one_of(
                gpu=lambda gpu: gpu.temperature_celsius,
                memory=lambda gpu: gpu.memory_temperature_celsius,
            ),
        ),
        {**_DEVICE, "hw.sensor_location": ("gpu", "memory")},
    ),
    Metric(
        "hw.gpu.io",
        "counter",
        "By",
        "Traffic of the GPU over PCIe.",
        read.detail("network.io.direction", _io("pcie")),
        {**_DEVICE, "network.io.direction": _DIRECTIONS},
    ),
    Metric(
        "hw.errors",
        "counter",
        "{error}",
        "Errors of the GPU since the attempt began: memory, links, and those the driver numbers.",
        read.detail("error.type", lambda gpu: gpu.errors, hw_type="gpu"),
        {**_TYPED, "error.type": read.ERRORS},
    ),
    Metric(
        "costlens.gpu.state",
        "updowncounter",
        "",
        "GPUs of the rank that are well, and those that the driver has lost.",
        read.read_states,
        {**_DEVICE, "hw.state": read.STATES},
    ),
    Metric(
        "costlens.gpu.power.limit",
        "gauge",
        "W",
        "Power that the GPU may draw.",
        read.power_limit,
        _DEVICE,
    ),
    Metric(
        "costlens.gpu.activity.ratio",
        "gauge",
        "1",
        "Share of what a unit of the GPU could do, where the driver measures it.",
        read.detail("costlens.gpu.unit", lambda gpu: gpu.activity),
        {**_DEVICE, "costlens.gpu.unit": read.UNITS},
    ),
    Metric(
        "costlens.gpu.clock.frequency",
        "gauge",
        "Hz",
        "Clock of the GPU; the mean where a rank drives several.",
        read.detail(
            "costlens.gpu.clock.domain",
            read.one_of(
                sm=lambda gpu: gpu.sm_clock_hertz, memory=lambda gpu: gpu.memory_clock_hertz
            ),
        ),
        {**_DEVICE, "costlens.gpu.clock.domain": ("sm", "memory")},
    ),
    Metric(
        "costlens.gpu.throttle.time",
        "counter",
        "s",
        "Time in which the clocks were held down, by reason; reasons overlap.",
        read.detail("costlens.gpu.throttle.reason", lambda gpu: gpu.throttle_s or {}),
        {**_DEVICE, "costlens.gpu.throttle.reason": read.REASONS},
    ),
    Metric(
        "costlens.gpu.nvlink.io",
        "counter",
        "By",
        "Traffic of the GPU over NVLink.",
        read.detail("network.io.direction", _io("nvlink")),
        {**_DEVICE, "network.io.direction": _DIRECTIONS},
    ),
)
"""Metrics of the GPUs of a rank."""
