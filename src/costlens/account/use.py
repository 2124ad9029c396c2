"""How busy a rank's GPUs and host were between two of its records. Pure.

Records hold sums since the attempt began: what happened in a window is the difference of two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from costlens.core.device_records import GpuPart
from costlens.core.host_records import ContainerPart, HostPart, NodePart
from costlens.core.records import RankRecord
from costlens.core.use_records import UsePart

__all__ = ["measure_use"]

_DIGITS = 4
_NOTHING = UsePart()


def measure_use(now: RankRecord, before: RankRecord | None) -> UsePart | None:
    """Return the use from one record of a rank to the next; None where none is known.

    Args:
        now: The record at the end of the window.
        before: That at its start; None where the attempt begins with it.
    """
    earlier = {} if before is None else {gpu.uuid: gpu for gpu in before.gpus}
    host = now.host
    use = UsePart(
        gpu_utilization=_share(*_busy(now.gpus, earlier)),
        gpu_memory_ratio=_share(*_memory(now.gpus)),
        gpu_power_watts=_round(_power(now.gpus, earlier)),
        cpu_ratio=None if host is None else _cpu_ratio(host),
        memory_ratio=None if host is None else _memory_ratio(host),
        loader_cpus=None if host is None or host.loader is None else _round(host.loader.cpus_busy),
    )
    return None if use == _NOTHING else use


def _busy(gpus: Sequence[GpuPart], earlier: Mapping[str, GpuPart]) -> tuple[float, float]:
    busy_s = sum(gpu.busy_s for gpu in gpus)
    known_s = sum(gpu.utilization_s for gpu in gpus)
    olds = [earlier[gpu.uuid] for gpu in gpus if gpu.uuid in earlier]
    return (
        busy_s - sum(old.busy_s for old in olds),
        known_s - sum(old.utilization_s for old in olds),
    )


def _memory(gpus: Sequence[GpuPart]) -> tuple[float, float]:
    told = [
        (gpu.memory_used_bytes, gpu.memory_total_bytes)
        for gpu in gpus
        if gpu.memory_used_bytes is not None and gpu.memory_total_bytes
    ]
    return float(sum(used for used, _ in told)), float(sum(total for _, total in told))


def _power(gpus: Sequence[GpuPart], earlier: Mapping[str, GpuPart]) -> float | None:
    watts = []
    for gpu in gpus:
        old = earlier.get(gpu.uuid)
        joules, seconds = gpu.energy_joules, gpu.energy_s
        if joules is None:
            continue
        if old is not None and old.energy_joules is not None:
            joules, seconds = joules - old.energy_joules, seconds - old.energy_s
        if seconds > 0 and joules >= 0:
            watts.append(joules / seconds)
    return sum(watts) if watts else None


def _cpu_ratio(host: HostPart) -> float | None:
    container, node = host.container, host.node
    # Under a limit the machine may be idle and the rank starved.
    if container is not None and container.cpu_limit is not None:
        return _round(container.cpu_ratio)
    return None if node is None else _round(node.cpu_ratio)


def _memory_ratio(host: HostPart) -> float | None:
    limited = _limited_memory(host.container)
    return _node_memory(host.node) if limited is None else limited


def _limited_memory(container: ContainerPart | None) -> float | None:
    if container is None or container.memory_used_bytes is None:
        return None
    return _share(container.memory_used_bytes, container.memory_limit_bytes or 0)


def _node_memory(node: NodePart | None) -> float | None:
    if node is None or node.memory_bytes is None or node.memory_available_bytes is None:
        return None
    return _share(node.memory_bytes - node.memory_available_bytes, node.memory_bytes)


def _share(part: float, whole: float) -> float | None:
    # Sums of floats may differ in their last bits, and a share is never above 1.
    return round(min(1.0, max(0.0, part / whole)), _DIGITS) if whole > 0 else None


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)
