"""How the GPU entries of the metric catalogue read a snapshot, and what a span says of the GPUs.

A rank of a data-parallel job drives one device, and every detail of it is exported. For a rank that
drives several, utilization, memory, power and energy are told by device, and the details of all of
them together, as ``hw.id="all"``: 300 series hold no more. The record keeps them by device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from costlens.account.device_meter import COUNTERS, THROTTLE_REASONS
from costlens.account.gpus import (
    combine_gpus,
    mean_activity,
    mean_utilization,
    sum_known,
    sum_maps,
)
from costlens.core.device_records import GpuPart
from costlens.core.snapshot import Snapshot
from costlens.export.readings import Attributes, Point, Read

__all__ = [
    "ERRORS",
    "MAX_DEVICES",
    "REASONS",
    "SIMULATED",
    "SIMULATED_ONLY",
    "STATES",
    "UNITS",
    "GetMany",
    "by_device",
    "detail",
    "gpu_attributes",
    "one_of",
    "power_limit",
    "read_states",
]

MAX_DEVICES = 4
"""Devices of a rank with series of their own; more of them are told together."""

SIMULATED = "costlens.simulated"
SIMULATED_ONLY = ("true",)
"""The attribute that says that a stand-in driver made the numbers up; absent on real devices."""

UNITS = ("sm", "tensor", "dram")
REASONS = THROTTLE_REASONS
STATES = ("ok", "failed")
ERRORS = (*COUNTERS["errors"], "xid")

GetMany = Callable[[GpuPart], Mapping[str, float]]


def by_device(get: Callable[[GpuPart], float | None], **constant: str) -> Read:
    """Return a reader of one number per device; more than four devices are told as one.

    Args:
        get: Returns the number of a device, None where it is not known.
        **constant: Attributes that are always the same, with ``_`` for ``.``.
    """
    fixed = {name.replace("_", "."): value for name, value in constant.items()}

    def read(snapshot: Snapshot) -> Iterable[Point]:
        for gpu in _spread(snapshot.record.gpus, MAX_DEVICES):
            value = get(gpu)
            if value is not None:
                yield {**_identify(gpu), **fixed}, value

    return read


def detail(attribute: str, get: GetMany, **constant: str) -> Read:
    """Return a reader of one number per value of an attribute, for the only device or for all.

    Args:
        attribute: The attribute.
        get: Returns what is known of a device, by the values of the attribute.
        **constant: Attributes that are always the same, with ``_`` for ``.``.
    """
    fixed = {name.replace("_", "."): value for name, value in constant.items()}

    def read(snapshot: Snapshot) -> Iterable[Point]:
        for gpu in _spread(snapshot.record.gpus, 1):
            for key, value in get(gpu).items():
                yield {**_identify(gpu), **fixed, attribute: key}, value

    return read


def one_of(**getters: Callable[[GpuPart], float | None]) -> GetMany:
    """Return what tells several fields of a device by the names given here."""

    def get(gpu: GpuPart) -> Mapping[str, float]:
        found = {name: getter(gpu) for name, getter in getters.items()}
        return {name: value for name, value in found.items() if value is not None}

    return get


def read_states(snapshot: Snapshot) -> Iterable[Point]:
    """Return how many devices are well, and how many the driver has lost."""
    gpus = snapshot.record.gpus
    num_failed = sum(gpu.is_lost for gpu in gpus)
    counts = {"ok": len(gpus) - num_failed, "failed": num_failed}
    for gpu in _spread(gpus, 1):
        for state, count in counts.items():
            yield {**_identify(gpu), "hw.state": state}, count


def power_limit(snapshot: Snapshot) -> Iterable[Point]:
    """Return the power that the only device, or all together, may draw."""
    for gpu in _spread(snapshot.record.gpus, 1):
        if gpu.power_limit_watts is not None:
            yield _identify(gpu), gpu.power_limit_watts


def _spread(gpus: Sequence[GpuPart], most: int) -> Sequence[GpuPart]:
    return gpus if len(gpus) <= most else (combine_gpus(gpus),)


def _identify(gpu: GpuPart) -> Attributes:
    simulated = {SIMULATED: SIMULATED_ONLY[0]} if gpu.is_simulated else {}
    return {"hw.id": gpu.uuid, **simulated}


def gpu_attributes(before: Sequence[GpuPart], now: Sequence[GpuPart]) -> dict[str, float | str]:
    """Return what the devices of a rank did between two records, as span attributes.

    Means, energy and times are those of the time in between; memory and temperature are the newest.

    Args:
        before: The devices as the last record before told; empty at the start of an attempt.
        now: The devices as the newest record tells.
    """
    if not now:
        return {}
    earlier = {gpu.uuid: gpu for gpu in before}
    added = [_since(earlier.get(gpu.uuid), gpu) for gpu in now]
    energy_j = sum_known(gpu.energy_joules for gpu in added)
    energy_s = max(gpu.energy_s for gpu in added)
    temperatures = [g.temperature_celsius for g in now if g.temperature_celsius is not None]
    found: dict[str, float | str | None] = {
        "costlens.gpu.count": len(now),
        SIMULATED: SIMULATED_ONLY[0] if any(gpu.is_simulated for gpu in now) else None,
        "costlens.gpu.utilization": mean_utilization(added),
        "costlens.gpu.energy": energy_j,
        "costlens.gpu.power.mean": None
        if energy_j is None or energy_s == 0
        else energy_j / energy_s,
        "costlens.gpu.memory.usage": sum_known(gpu.memory_used_bytes for gpu in now),
        "costlens.gpu.memory.limit": sum_known(gpu.memory_total_bytes for gpu in now),
        "costlens.gpu.temperature.max": max(temperatures, default=None),
        "costlens.gpu.lost": sum(gpu.is_lost for gpu in now) or None,
    }
    found |= {f"costlens.gpu.activity.{unit}": x for unit, x in mean_activity(added).items()}
    throttled = sum_maps(gpu.throttle_s for gpu in added)
    found |= {f"costlens.gpu.throttle.time.{name}": s for name, s in throttled.items() if s > 0}
    errors = sum_maps(gpu.errors for gpu in added)
    found |= {f"costlens.gpu.errors.{name}": count for name, count in errors.items() if count > 0}
    return {name: value for name, value in found.items() if value is not None}


def _since(before: GpuPart | None, now: GpuPart) -> GpuPart:
    """Return the device with the sums of the time since an earlier record."""
    if before is None:
        return now

    def less(sums: Mapping[str, float], earlier: Mapping[str, float]) -> dict[str, float]:
        return {name: value - earlier.get(name, 0) for name, value in sums.items()}

    energy = now.energy_joules
    numbers = ("sampled_s", "busy_s", "utilization_s", "activity_s", "energy_s")
    return now.model_copy(
        update={
            **{name: getattr(now, name) - getattr(before, name) for name in numbers},
            "energy_joules": None if energy is None else energy - (before.energy_joules or 0.0),
            "activity_busy_s": less(now.activity_busy_s, before.activity_busy_s),
            "throttle_s": None
            if now.throttle_s is None
            else less(now.throttle_s, before.throttle_s or {}),
            "errors": less(now.errors, before.errors),
        }
    )
