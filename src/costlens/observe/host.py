"""What the operating system tells of this process and of the machine, through psutil.

Each reader gives what it can; what the system refuses or does not know is absent.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import psutil

__all__ = ["CpuTimes", "list_disks", "list_networks", "node_id", "read_process", "sum_io"]

_ROOT = Path("/")
_VIRTUAL_DISKS = ("loop", "ram", "zram", "dm-", "md", "nbd", "sr", "fd")
_MAX_DEVICES = 256
# What the kernel splits finer than anybody asks for.
_MODES = {
    "user": ("user", "nice"),
    "system": ("system", "irq", "softirq"),
    "iowait": ("iowait",),
    "steal": ("steal",),
    "idle": ("idle",),
}

CpuTimes = Mapping[str, float]
T = TypeVar("T")


def read_or_none(read: Callable[[], T]) -> T | None:
    """Return what ``read`` returns, None where the system refuses or does not know."""
    try:
        return read()
    except (psutil.Error, OSError, NotImplementedError, AttributeError, RuntimeError):
        return None


def _has_none() -> None:
    raise NotImplementedError  # macOS


def read_process(process: psutil.Process) -> dict[str, float | int | None]:
    """Return fields of ``ProcessPart``; about 100 µs.

    Args:
        process: This process.
    """
    with process.oneshot():
        cpu = read_or_none(process.cpu_times)
        memory = read_or_none(process.memory_info)
        switches = read_or_none(process.num_ctx_switches)
        num_threads = read_or_none(process.num_threads)
        io = read_or_none(getattr(process, "io_counters", _has_none))
    return {
        "cpu_user_s": None if cpu is None else cpu.user,
        "cpu_system_s": None if cpu is None else cpu.system,
        "ended_children_s": None if cpu is None else cpu.children_user + cpu.children_system,
        "memory_bytes": None if memory is None else memory.rss,
        "num_threads": num_threads,
        "voluntary_switches": None if switches is None else switches.voluntary,
        "involuntary_switches": None if switches is None else switches.involuntary,
        "disk_read_bytes": None if io is None else io.read_bytes,
        "disk_write_bytes": None if io is None else io.write_bytes,
    }


def count_usable_cpus() -> int | None:
    """Return how many CPUs this process may run on by its affinity."""
    if hasattr(os, "sched_getaffinity"):
        return read_or_none(lambda: len(os.sched_getaffinity(0)))
    return os.cpu_count()


def read_cpu_modes() -> dict[str, float]:
    """Return CPU seconds of the machine by mode since it started; about 30 µs."""
    times = read_or_none(psutil.cpu_times)
    if times is None:
        return {}
    return {
        mode: sum(getattr(times, name, 0.0) for name in names)
        for mode, names in _MODES.items()
        if hasattr(times, names[0])
    }


def list_disks(root: Path = _ROOT) -> set[str] | None:
    """Return the whole disks whose traffic is that of the machine, each counted once.

    Partitions, mirrors and encrypted volumes hand their traffic on to a disk that has a device.
    None where the system does not tell (then psutil's own choice counts).

    Args:
        root: Where ``sys`` is looked for.
    """
    names = _list(root / "sys/block")
    if names is None:
        return None
    real = {name for name in names if (root / "sys/block" / name / "device").exists()}
    real = {name for name in real if not name.startswith(_VIRTUAL_DISKS)}
    return real or {name for name in names if not name.startswith(_VIRTUAL_DISKS)}


def list_networks(root: Path = _ROOT) -> set[str] | None:
    """Return the network's devices whose traffic is that of the machine, each counted once.

    Bridges, bonds and tunnels hand theirs on to a device; in a container there is none, and what is
    not loopback counts. None where the system does not tell.

    Args:
        root: Where ``sys`` is looked for.
    """
    names = _list(root / "sys/class/net")
    if names is None:
        return None
    real = {name for name in names if (root / "sys/class/net" / name / "device").exists()}
    return real or {name for name in names if name != "lo"}


def sum_io(
    counters: Mapping[str, Any] | None, names: set[str] | None, field: str
) -> dict[str, int] | None:
    """Return one field of the counters of some devices, by device; None where there are none.

    Args:
        counters: psutil's, by device.
        names: Devices that count; None lets all count.
        field: Name of the field.
    """
    if not counters:
        return None
    chosen = [name for name in counters if names is None or name in names][:_MAX_DEVICES]
    return {name: int(getattr(counters[name], field)) for name in chosen}


def node_id(root: Path = _ROOT) -> str | None:
    """Return a hash of the machine's boot: the same for all containers on it. None if untold."""
    try:
        boot = (root / "proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    return hashlib.blake2b(boot.encode(), digest_size=8).hexdigest()


def _list(folder: Path) -> list[str] | None:
    return read_or_none(lambda: sorted(path.name for path in folder.iterdir()))
