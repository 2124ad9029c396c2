"""The sections on how busy GPUs and hosts were: strips over time, and each device. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from costlens.account.gpus import mean_utilization
from costlens.core.device_records import GpuDevice
from costlens.core.host_records import HostSummary
from costlens.core.run_record import RunRecord
from costlens.export.figures import show_bytes, show_count, show_duration, show_rate, show_share
from costlens.export.page.charts import Spec, band, follow, hover, quantity
from costlens.export.page.parts import Cell, Chart, Figure, Section, Table, known, unknown
from costlens.export.page.rows import Rows, span_keys

__all__ = ["describe_gpus", "describe_hosts"]

_STRIPS = {
    "gpu_utilization": ("GPU busy", ".0%", "gpu"),
    "gpu_memory_ratio": ("GPU memory in use", ".0%", "gpu"),
    "gpu_power_watts": ("GPU power (W)", ",.4~g", "gpu"),
    "cpu_ratio": ("CPU busy", ".0%", "host"),
    "memory_ratio": ("memory in use", ".0%", "host"),
    "loader_cpus": ("CPUs busy in loader workers", ".2~f", "host"),
}
_MAX_DEVICES = 64
_MAX_HOSTS = 64
_FEW = 60


def describe_gpus(record: RunRecord, rows: Rows) -> Section:
    """Return the section on GPUs."""
    key, title = "gpus", "GPUs (simulated)" if record.gpu.is_simulated else "GPUs"
    summary = record.gpu
    if not summary.devices:
        return Section(key, title, unknown=summary.unknown or "no rank has seen a GPU")
    strips = list(_draw(rows, "gpu"))
    busy = summary.utilization
    lead = "How busy they were is unknown: the driver does not tell."
    if busy is not None:
        lead = f"Busy {show_share(busy)} of the time, mean over devices and attempts."
    return Section(
        key,
        title,
        lead=lead,
        charts=strips,
        tables=[_tabulate_gpus(summary.devices)],
        notes=[] if strips else [_NO_STRIPS],
    )


_NO_STRIPS = "How it went over time is unknown: the windows that were read do not hold it."


def describe_hosts(record: RunRecord, rows: Rows) -> Section:
    """Return the section on hosts."""
    key, title = "hosts", "Hosts"
    if not record.host:
        return Section(key, title, unknown="no rank has sampled its host")
    strips = list(_draw(rows, "host"))
    num = len(record.host)
    lead = "One host." if num == 1 else f"{show_count(num)} hosts."
    return Section(
        key,
        title,
        lead=lead,
        charts=strips,
        tables=[_tabulate_hosts(record.host)],
        notes=[] if strips else [_NO_STRIPS],
    )


def _draw(rows: Rows, kind: str) -> Iterable[Chart]:
    for name, (title, how, belongs) in _STRIPS.items():
        if belongs != kind or name not in rows.uses:
            continue
        mean, least, most = span_keys(name)
        scale = {"domain": [0, 1]} if "%" in how else {"zero": True}
        y = quantity(mean, None, axis={"format": how, "tickCount": 2}, scale=scale)
        spec: Spec = {
            "data": {"name": "columns"},
            "height": 64,
            "layer": [
                band(least, most, kind, y=y),
                follow(mean, kind, y=y, is_dotted=len(rows.rows) <= _FEW),
                hover(
                    {
                        "a": ("from", "time"),
                        mean: ("mean", how),
                        least: ("least", how),
                        most: ("most", how),
                    }
                ),
            ],
        }
        means = [row[mean] for row in rows.rows if row.get(mean) is not None]
        said = f"Means of columns lie between {min(means):.3g} and {max(means):.3g}."
        yield Chart(f"use-{name.replace('_', '-')}", title, f"{title}: {said}", spec)


def _tabulate_gpus(devices: list[GpuDevice]) -> Table:
    titles = ("device", "host", "busy", "memory", "power", "energy", "held down", "errors")
    rows: list[list[Cell]] = []
    for index, device in enumerate(devices[:_MAX_DEVICES]):
        path = f"gpu.devices.{index}"
        rows.append(
            [
                f"{device.name or 'GPU'} {device.uuid[:12]}",
                Figure(device.host_name),
                _share(mean_utilization([device]), "the driver does not tell"),
                _memory(device, path),
                _power(device, path),
                _energy(device, path),
                _held(device),
                _errors(device),
            ]
        )
    hidden = len(devices) - len(rows)
    note = f"{hidden:,} more devices are left out." if hidden else None
    return Table("Devices of the newest attempt", titles, rows, note)


def _share(share: float | None, why: str, path: str | None = None) -> Figure:
    return unknown(why, path) if share is None else known(show_share(share), share, path)


def _absent(device: GpuDevice, name: str) -> str:
    return device.absent.get(name, "the driver does not tell").replace("_", " ")


def _memory(device: GpuDevice, path: str) -> Figure:
    used, total = device.memory_used_bytes, device.memory_total_bytes
    if used is None:
        return unknown(_absent(device, "memory_used_bytes"), f"{path}.memory_used_bytes")
    of = "" if total is None else f" of {show_bytes(total)}"
    return known(f"{show_bytes(used)}{of}", used, f"{path}.memory_used_bytes")


def _power(device: GpuDevice, path: str) -> Figure:
    watts, limit = device.power_watts, device.power_limit_watts
    if watts is None:
        return unknown(_absent(device, "power_watts"), f"{path}.power_watts")
    of = "" if limit is None else f" of {limit:.0f} W"
    return known(f"{watts:.0f} W{of}", watts, f"{path}.power_watts")


def _energy(device: GpuDevice, path: str) -> Figure:
    joules = device.energy_joules
    if joules is None:
        return unknown(_absent(device, "energy_joules"), f"{path}.energy_joules")
    return known(f"{show_rate(joules / 3.6e6)} kWh", joules, f"{path}.energy_joules")


def _held(device: GpuDevice) -> Figure:
    if device.throttle_s is None:
        return unknown(_absent(device, "throttle_s"))
    held = {reason: s for reason, s in device.throttle_s.items() if s > 0}
    told = [f"{reason.replace('_', ' ')} {show_duration(held[reason])}" for reason in sorted(held)]
    return Figure(", ".join(told) or "never")


def _errors(device: GpuDevice) -> Figure:
    told = [f"{kind.replace('_', ' ')} {count:,}" for kind, count in device.errors.items() if count]
    if device.is_lost:
        told.insert(0, "lost")
    return Figure(", ".join(told) or "none", tone="bad" if told else "")


def _tabulate_hosts(hosts: list[HostSummary]) -> Table:
    titles = (
        "host",
        "ranks",
        "CPU busy",
        "CPUs of ranks",
        "CPUs of loaders",
        "memory free",
        "reads",
    )
    rows: list[list[Cell]] = []
    for index, host in enumerate(hosts[:_MAX_HOSTS]):
        path = f"host.{index}"
        node = host.node
        rows.append(
            [
                host.host_name,
                known(show_count(host.num_ranks), host.num_ranks, f"{path}.num_ranks"),
                _share(
                    None if node is None else node.cpu_ratio,
                    "local rank 0 has not told it",
                    f"{path}.node.cpu_ratio",
                ),
                _cpus(host.process_cpus, f"{path}.process_cpus"),
                _cpus(host.loader_cpus, f"{path}.loader_cpus"),
                _free(host, path),
                _reads(host, path),
            ]
        )
    hidden = len(hosts) - len(rows)
    note = f"{hidden:,} more hosts are left out." if hidden else None
    return Table("Hosts, each in the newest attempt on it", titles, rows, note)


def _cpus(cpus: float | None, path: str) -> Figure:
    return unknown("nobody told it", path) if cpus is None else known(f"{cpus:.2f}", cpus, path)


def _free(host: HostSummary, path: str) -> Figure:
    container, node = host.container, host.node
    if container is not None and container.memory_available_bytes is not None:
        free = container.memory_available_bytes
        return known(show_bytes(free), free, f"{path}.container.memory_available_bytes")
    if node is None or node.memory_available_bytes is None:
        return unknown("local rank 0 has not told it", f"{path}.node.memory_available_bytes")
    free = node.memory_available_bytes
    return known(show_bytes(free), free, f"{path}.node.memory_available_bytes")


def _reads(host: HostSummary, path: str) -> Figure:
    reads = host.reads
    if reads is None:
        return unknown("no run.filesystem is used", f"{path}.reads.num_bytes")
    return known(show_bytes(reads.num_bytes), reads.num_bytes, f"{path}.reads.num_bytes")
