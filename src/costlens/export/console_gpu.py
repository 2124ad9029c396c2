"""The part of the console report on the GPUs: how busy they were, and what energy they took."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from costlens.account.gpus import mean_utilization
from costlens.core.device_records import GpuDevice, GpuSummary
from costlens.core.run_record import RunRecord
from costlens.export.console_layout import Renderable, join, plural
from costlens.export.figures import show_count, show_duration, show_rate, show_share

__all__ = ["describe_gpus", "gpu_title"]

_MAX_SHOWN = 16
_GIBIBYTE = 2**30
_JOULES_PER_KWH = 3.6e6
_UNKNOWN = "–"
_MIN_THROTTLED = 0.01


def gpu_title(record: RunRecord) -> str:
    """Return the title of the section; what a stand-in driver made up is called so."""
    return "GPUs (simulated)" if record.gpu.is_simulated else "GPUs"


def describe_gpus(record: RunRecord) -> Iterable[Renderable]:
    """Yield a row for each device of the newest attempt and one for all; nothing without any."""
    summary = record.gpu
    if not summary.devices:
        if any(rank.device == "cuda" for rank in record.ranks) and summary.unknown:
            yield Text(f"nothing is known of them: {summary.unknown}", "yellow")
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("", overflow="ellipsis", no_wrap=True)
    for title in ("busy", "memory", "power", "energy"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("held down by", overflow="fold")
    has_hosts = len({device.host_name for device in summary.devices}) > 1
    for device in summary.devices[:_MAX_SHOWN]:
        host = f"{device.host_name} " if has_hosts else ""
        table.add_row(f"{host}{device.uuid[:12]}", *_cells(device))
    hidden = len(summary.devices) - _MAX_SHOWN
    if hidden > 0:
        table.add_row(f"{hidden} more", *[""] * 5, style="dim")
    if len(summary.devices) > 1 or len(summary.energy_by_attempt) > 1:
        table.add_row(*_total_cells(summary), style="bold")
    yield table
    facts = join(
        f"energy from {' and '.join(summary.energy_sources)}" if summary.energy_sources else None,
        "partial: some devices are not measured" if summary.is_partial else None,
        f"{show_count(summary.errors['xid'])} driver errors" if summary.errors.get("xid") else None,
    )
    if facts:
        yield Text(facts, "dim")


def _cells(device: GpuDevice) -> list[str]:
    return [
        _share(mean_utilization([device])),
        _memory(device.memory_used_bytes, device.memory_total_bytes),
        _power(device.power_watts, device.power_limit_watts),
        _energy(device.energy_joules),
        _remark(device),
    ]


def _total_cells(summary: GpuSummary) -> list[str]:
    return [
        plural(summary.num_devices or 0, "GPU"),
        _share(summary.utilization),
        _memory(summary.memory_used_bytes, summary.memory_total_bytes),
        _power(summary.power_watts, summary.power_limit_watts),
        _energy(summary.energy_joules),
        "all attempts" if len(summary.energy_by_attempt) > 1 else "",
    ]


def _remark(device: GpuDevice) -> str:
    held_s = {r: s for r, s in (device.throttle_s or {}).items() if s > 0}
    worst = max(held_s, key=lambda reason: held_s[reason], default=None)
    is_held = worst is not None and held_s[worst] >= _MIN_THROTTLED * device.sampled_s
    return join(
        "lost" if device.is_lost else None,
        f"{worst.replace('_', ' ')} {show_duration(held_s[worst])}"
        if worst is not None and is_held
        else None,
        f"error {device.last_xid}" if device.last_xid is not None else None,
    )


def _share(share: float | None) -> str:
    return _UNKNOWN if share is None else show_share(share)


def _memory(used: float | None, total: float | None) -> str:
    if used is None:
        return _UNKNOWN
    limit = "" if total is None else f"/{total / _GIBIBYTE:.0f}"
    return f"{used / _GIBIBYTE:.1f}{limit} GiB"


def _power(watts: float | None, limit: float | None) -> str:
    if watts is None:
        return _UNKNOWN
    return f"{watts:.0f} W" if limit is None else f"{watts:.0f}/{limit:.0f} W"


def _energy(joules: float | None) -> str:
    if joules is None:
        return _UNKNOWN
    # One unit for all that small runs show; joules and kilowatt-hours are hard to compare.
    if joules < _JOULES_PER_KWH:
        return f"{show_rate(joules / 3600)} Wh"
    return f"{show_rate(joules / _JOULES_PER_KWH)} kWh"
