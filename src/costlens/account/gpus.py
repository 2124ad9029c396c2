"""The GPUs of several records as one: sums that count a shared device once.

``ledger.py`` merges a run with it; spans and metrics add up the devices of a rank. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from costlens.core.device_records import GpuDevice, GpuPart, GpuSummary
from costlens.core.records import RankRecord

__all__ = [
    "ALL_GPUS",
    "combine_gpus",
    "mean_activity",
    "mean_utilization",
    "merge_gpus",
    "sum_known",
    "sum_maps",
]

ALL_GPUS = "all"
"""What the devices of a rank are called when they are told together."""

_NO_GPU = "no rank has seen a GPU"


def sum_known(values: Iterable[float | None]) -> float | None:
    """Return the sum of what is known, None where nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def sum_maps(maps: Iterable[Mapping[str, int] | Mapping[str, float] | None]) -> dict[str, float]:
    """Return the sums by key of all maps that are there."""
    sums: dict[str, float] = {}
    for each in maps:
        for name, value in (each or {}).items():
            sums[name] = sums.get(name, 0) + value
    return sums


def mean_utilization(gpus: Iterable[GpuPart]) -> float | None:
    """Return the mean utilization over time and devices, 0 to 1; None where none tells it."""
    parts = list(gpus)
    seconds = sum(part.utilization_s for part in parts)
    return sum(part.busy_s for part in parts) / seconds if seconds else None


def mean_activity(gpus: Iterable[GpuPart]) -> dict[str, float]:
    """Return the mean activity by unit over time and devices, 0 to 1."""
    parts = [part for part in gpus if part.activity_busy_s]
    seconds = sum(part.activity_s for part in parts)
    if not seconds:
        return {}
    return {
        unit: busy_s / seconds
        for unit, busy_s in sum_maps(part.activity_busy_s for part in parts).items()
    }


def merge_gpus(records: Sequence[RankRecord]) -> GpuSummary:
    """Return the devices of a run.

    A device that several ranks of an attempt share is described by the one that watched it longest.

    Args:
        records: One record per attempt and rank, attempts in order; at least one.
    """
    groups: dict[int, list[RankRecord]] = {}
    for record in records:
        groups.setdefault(record.attempt.number, []).append(record)
    attempts = {number: _find_devices(group) for number, group in groups.items()}
    everything = [device for devices in attempts.values() for device in devices]
    if not everything:
        return GpuSummary(unknown=_explain(records))
    newest = attempts[max(attempts)]
    return GpuSummary(
        num_devices=len(newest) or None,
        is_simulated=any(device.is_simulated for device in everything),
        is_partial=_is_partial(records, everything),
        energy_joules=sum_known(device.energy_joules for device in everything),
        energy_by_attempt={
            str(number): energy
            for number, devices in attempts.items()
            if (energy := sum_known(device.energy_joules for device in devices)) is not None
        },
        energy_sources=sorted({d.energy_source for d in everything if d.energy_source is not None}),
        utilization=mean_utilization(everything),
        activity=mean_activity(everything),
        throttle_s=sum_maps(device.throttle_s for device in everything),
        io_bytes=_whole(sum_maps(device.io_bytes for device in everything)),
        errors=_whole(sum_maps(device.errors for device in everything)),
        devices=newest,
        **_newest_sums(newest),
    )


def _newest_sums(devices: Sequence[GpuDevice]) -> dict[str, float | None]:
    def total(get: Callable[[GpuDevice], float | None]) -> float | None:
        return sum_known(get(device) for device in devices)

    return {
        "memory_used_bytes": total(lambda device: device.memory_used_bytes),
        "memory_total_bytes": total(lambda device: device.memory_total_bytes),
        "power_watts": total(lambda device: device.power_watts),
        "power_limit_watts": total(lambda device: device.power_limit_watts),
    }


_REASONS = {
    "no_library": "there is no NVIDIA driver (libnvidia-ml.so.1 is not found)",
    "no_package": "the package nvidia-ml-py is not installed",
    "no_driver": "the NVIDIA driver is installed and not loaded",
    "no_permission": "this user may not talk to the NVIDIA driver",
    "not_opened": "the NVIDIA driver has not been asked",
    "uninitialized": "the NVIDIA driver has not been asked again since the process forked",
    "version_mismatch": "the NVIDIA driver's library and kernel module are of two versions",
}


def _find_devices(records: Sequence[RankRecord]) -> list[GpuDevice]:
    best: dict[str, tuple[RankRecord, GpuPart]] = {}
    ranks: dict[str, list[int]] = {}
    for record in sorted(records, key=lambda record: record.rank.rank):
        for gpu in record.gpus:
            known = best.get(gpu.uuid)
            if known is None or gpu.sampled_s > known[1].sampled_s:
                best[gpu.uuid] = (record, gpu)
            ranks.setdefault(gpu.uuid, []).append(record.rank.rank)
    return [
        GpuDevice(**dict(gpu), host_name=record.rank.host_name, ranks=ranks[uuid])
        for uuid, (record, gpu) in best.items()
    ]


def _is_partial(records: Sequence[RankRecord], devices: Sequence[GpuDevice]) -> bool:
    is_blind = any(record.rank.num_gpus > len(record.gpus) for record in records)
    return is_blind or any(device.energy_joules is None for device in devices)


def _explain(records: Sequence[RankRecord]) -> str:
    reasons = Counter(
        record.gpu_driver.reason
        for record in records
        if record.gpu_driver is not None and record.gpu_driver.reason is not None
    )
    if not reasons:
        return _NO_GPU
    reason = min(reasons, key=lambda name: (-reasons[name], name))
    return _REASONS.get(reason) or f"the NVIDIA driver refuses: {reason.replace('_', ' ')}"


def _whole(sums: Mapping[str, float]) -> dict[str, int]:
    return {name: int(value) for name, value in sums.items()}


def combine_gpus(gpus: Sequence[GpuPart]) -> GpuPart:
    """Return several devices of a rank as one, called ``all``.

    Sums of what adds up, means over the devices of shares and clocks, the hottest temperature.

    Args:
        gpus: At least one device.
    """

    def told(name: str) -> list[float]:
        return [value for gpu in gpus if (value := getattr(gpu, name)) is not None]

    sums = (
        *("memory_used_bytes", "memory_total_bytes", "power_watts", "power_limit_watts"),
        *("energy_joules", "sampled_s", "busy_s", "utilization_s", "activity_s", "num_losses"),
    )
    means = ("utilization", "memory_utilization", "sm_clock_hertz", "memory_clock_hertz")
    most = ("temperature_celsius", "memory_temperature_celsius")
    throttled = [gpu.throttle_s for gpu in gpus if gpu.throttle_s is not None]
    busiest = [gpu.activity for gpu in gpus if gpu.activity]
    return GpuPart.model_validate(
        {
            "uuid": ALL_GPUS,
            "is_simulated": any(gpu.is_simulated for gpu in gpus),
            "is_lost": all(gpu.is_lost for gpu in gpus),
            **{name: sum_known(told(name)) for name in sums if told(name)},
            **{name: sum(told(name)) / len(told(name)) for name in means if told(name)},
            **{name: max(told(name)) for name in most if told(name)},
            "activity": {u: total / len(busiest) for u, total in sum_maps(busiest).items()},
            "activity_busy_s": sum_maps(gpu.activity_busy_s for gpu in gpus),
            "throttle_s": sum_maps(throttled) if throttled else None,
            "io_bytes": _whole(sum_maps(gpu.io_bytes for gpu in gpus)),
            "errors": _whole(sum_maps(gpu.errors for gpu in gpus)),
        }
    )
