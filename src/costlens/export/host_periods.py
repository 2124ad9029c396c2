"""What a period's span tells of the host: levels at its end, sums and shares over its time."""

from __future__ import annotations

from collections.abc import Iterable

from costlens.core.host_records import HostPart
from costlens.export.host_readings import look_up

__all__ = ["summarize_host"]

_LEVELS = {
    "process.memory.usage": "process.memory_bytes",
    "costlens.loader.workers.alive": "loader.num_alive",
    "costlens.loader.workers.died": "loader.num_died",
    "costlens.loader.memory.usage": "loader.memory_bytes",
    "system.memory.linux.available": "node.memory_available_bytes",
    "container.memory.available": "container.memory_available_bytes",
}
_SUMS = {
    "costlens.dataset.io": "reads.num_bytes",
    "costlens.dataset.reads": "reads.num_reads",
    "costlens.dataset.read.time": "reads.read_s",
    "costlens.dataset.read.errors": "reads.num_errors",
    "system.disk.io.read": "node.disk_read_bytes",
    "system.disk.io.write": "node.disk_write_bytes",
    "system.network.io.receive": "node.network_receive_bytes",
    "system.network.io.transmit": "node.network_transmit_bytes",
    "costlens.infiniband.io.receive": "node.infiniband_receive_bytes",
    "costlens.infiniband.io.transmit": "node.infiniband_transmit_bytes",
    "costlens.container.cpu.throttled.time": "container.throttled_s",
}
_WAITING = frozenset({"idle", "iowait"})


def summarize_host(before: HostPart | None, after: HostPart | None) -> dict[str, float]:
    """Return what the host did between two samples of one attempt, as span attributes.

    CPUs that were busy are a mean over the time; ratios are of 0 to 1.

    Args:
        before: The sample at the start of the period; None leaves out what needs a difference.
        after: The newest sample; None where the host is not sampled.
    """
    found = {name: look_up(after, path) for name, path in _LEVELS.items()}
    if before is not None and after is not None:
        found.update({name: _risen(before, after, [path]) for name, path in _SUMS.items()})
        found.update(_shares(before, after))
    return {name: value for name, value in found.items() if value is not None}


def _shares(before: HostPart, after: HostPart) -> dict[str, float | None]:
    seconds = after.sampled_s - before.sampled_s
    limit = look_up(after, "container.cpu_limit")
    process = _risen(before, after, ["process.cpu_user_s", "process.cpu_system_s"])
    container = _risen(before, after, ["container.cpu_s"])
    throttled = _risen(before, after, ["container.num_throttled"])
    return {
        "costlens.process.cpus": _divide(process, seconds),
        "costlens.loader.cpus": _divide(_risen(before, after, ["loader.cpu_s"]), seconds),
        "costlens.node.cpu.ratio": _busy_ratio(before, after),
        "costlens.container.cpu.ratio": _divide(container, (limit or 0.0) * seconds),
        "costlens.container.cpu.throttled.ratio": _divide(
            throttled, _risen(before, after, ["container.num_periods"])
        ),
    }


def _busy_ratio(before: HostPart, after: HostPart) -> float | None:
    if before.node is None or after.node is None:
        return None
    risen = {mode: s - before.node.cpu_s.get(mode, 0.0) for mode, s in after.node.cpu_s.items()}
    busy = sum(seconds for mode, seconds in risen.items() if mode not in _WAITING)
    return _divide(busy, sum(risen.values()))


def _risen(before: HostPart, after: HostPart, paths: Iterable[str]) -> float | None:
    """Return what fields have gone up by together, None where one of them is absent now."""
    total = 0.0
    for path in paths:
        value = look_up(after, path)
        if value is None:
            return None
        # What came up meanwhile, such as the first worker, began at nothing.
        total += max(0.0, value - (look_up(before, path) or 0.0))
    return total


def _divide(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole or whole < 0 else part / whole
