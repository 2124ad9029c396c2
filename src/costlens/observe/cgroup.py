"""What the control groups of this process allow and have used: CPU, throttling, memory.

Versions 1 and 2 and machines that mount both. A limit may stand at any level above the process, so
each level is read and the tightest counts. The root of the machine is no container and is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from costlens.observe.kernel_files import read_kernel_file

__all__ = ["Cgroups", "CpuReading", "Hierarchy", "MemoryReading", "find_cgroups"]

_ROOT = Path("/")
_CONTROLLERS = ("cpu", "cpuacct", "memory")
_MAX_LEVELS = 12
# Version 1 writes the largest multiple of a page where there is no limit; no machine has 1 EiB.
_NO_LIMIT_BYTES = 2**60


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """The groups of this process under one controller.

    Args:
        version: 1 or 2.
        levels: Folders from the process's own group upwards, without the machine's root.
    """

    version: int
    levels: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class CpuReading:
    """The CPU of the level with the tightest limit, or of the process's own group without one.

    Args:
        usage_s: CPU seconds of all its processes.
        limit: CPUs it may use, > 0; None without a limit.
        num_periods: Periods in which the limit applied.
        num_throttled: Periods in which it stopped somebody.
        throttled_s: Time stopped, summed over CPUs.
    """

    usage_s: float | None = None
    limit: float | None = None
    num_periods: int | None = None
    num_throttled: int | None = None
    throttled_s: float | None = None


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """The memory of the level that has the least left, or of the own group without a limit.

    Args:
        used_bytes: In use, without file pages that the kernel can drop at once.
        limit_bytes: What it may use; None without a limit.
    """

    used_bytes: int | None = None
    limit_bytes: int | None = None

    @property
    def available_bytes(self) -> int | None:
        """Return what is left until the kernel kills somebody, None without a limit."""
        if self.used_bytes is None or self.limit_bytes is None:
            return None
        return max(0, self.limit_bytes - self.used_bytes)


class Cgroups:
    """The control groups of this process; groups that vanish read as unknown.

    Args:
        hierarchies: By controller.
    """

    def __init__(self, hierarchies: dict[str, Hierarchy]) -> None:
        self.hierarchies = hierarchies

    def read_cpu(self) -> CpuReading | None:
        """Return the CPU, None outside of a container; about 30 µs a level."""
        found = self.hierarchies.get("cpu")
        if found is None:
            return None
        limits = [(_cpu_limit(level, found.version), level) for level in found.levels]
        known = [(limit, level) for limit, level in limits if limit is not None]
        limit, level = min(known, key=lambda pair: pair[0]) if known else (None, found.levels[0])
        numbers = _read_numbers(level / "cpu.stat")
        unit, name = (1e6, "throttled_usec") if found.version == 2 else (1e9, "throttled_time")
        throttled = numbers.get(name)
        return CpuReading(
            usage_s=self._cpu_usage_s(level, found),
            limit=limit,
            num_periods=numbers.get("nr_periods"),
            num_throttled=numbers.get("nr_throttled"),
            throttled_s=None if throttled is None else throttled / unit,
        )

    def _cpu_usage_s(self, level: Path, found: Hierarchy) -> float | None:
        if found.version == 2:
            usage = _read_numbers(level / "cpu.stat").get("usage_usec")
            return None if usage is None else usage / 1e6
        account = self.hierarchies.get("cpuacct")
        steps_up = found.levels.index(level)
        if account is None or steps_up >= len(account.levels):
            return None
        # Of two hierarchies only groups of the same name are the same processes.
        if account.levels[steps_up].name != level.name:
            return None
        usage = _read_number(account.levels[steps_up] / "cpuacct.usage")
        return None if usage is None else usage / 1e9

    def read_memory(self) -> MemoryReading | None:
        """Return the memory, None outside of a container; about 40 µs a level."""
        found = self.hierarchies.get("memory")
        if found is None:
            return None
        readings = [_read_memory(level, found.version) for level in found.levels]
        limited = [reading for reading in readings if reading.available_bytes is not None]
        return min(limited, key=lambda r: r.available_bytes or 0) if limited else readings[0]


def find_cgroups(root: Path = _ROOT) -> Cgroups:
    """Return the control groups of this process, without any where it is in none.

    Args:
        root: Where ``proc`` and the mounts are looked for.
    """
    groups = dict(_parse_groups(_read_text(root / "proc/self/cgroup")))
    found: dict[str, Hierarchy] = {}
    for controllers, mounted, point in _parse_mounts(_read_text(root / "proc/self/mountinfo")):
        # An empty name stands for all controllers of version 2; those of version 1 go before.
        for name in controllers & {"", *_CONTROLLERS}:
            if name not in groups or (name and name in found):
                continue
            levels = _levels(root / point.lstrip("/"), mounted, groups[name], 1 if name else 2)
            found[name] = Hierarchy(1 if name else 2, tuple(levels))
    unified = found.pop("", None)
    if unified is not None:
        for name, file in (("cpu", "cpu.stat"), ("memory", "memory.current")):
            if unified.levels and (unified.levels[0] / file).exists():
                found.setdefault(name, unified)
    return Cgroups({name: one for name, one in found.items() if one.levels})


def _parse_groups(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        fields = line.split(":", 2)
        if len(fields) == 3:
            for controller in fields[1].split(","):
                yield controller, fields[2]


def _parse_mounts(text: str) -> Iterator[tuple[set[str], str, str]]:
    """Yield controllers, root and place of each mount of control groups, as proc(5) lists them."""
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        before, after = left.split(), right.split()
        if len(before) < 5 or len(after) < 3:
            continue
        if after[0] == "cgroup2":
            yield {""}, before[3], before[4]
        elif after[0] == "cgroup":
            yield set(after[2].split(",")), before[3], before[4]


def _levels(mount: Path, mounted: str, group: str, version: int) -> Iterator[Path]:
    # A container may be shown the host's path, of which only a part (or nothing) is mounted.
    base = mounted.rstrip("/")
    inside = group[len(base) :] if group == base or group.startswith(base + "/") else ""
    names = [name for name in inside.split("/") if name]
    if ".." in names or not mount.joinpath(*names).is_dir():
        names = []
    for depth in range(len(names), max(-1, len(names) - _MAX_LEVELS), -1):
        level = mount.joinpath(*names[:depth])
        if level.is_dir() and not _is_machine_root(level, version):
            yield level


def _is_machine_root(level: Path, version: int) -> bool:
    # Files that the kernel makes in the root alone, or everywhere but there.
    if version == 1:
        return (level / "release_agent").exists()
    return not (level / "cgroup.type").exists()


def _cpu_limit(level: Path, version: int) -> float | None:
    if version == 2:
        fields = _read_text(level / "cpu.max").split()
        if len(fields) != 2 or not all(field.isdigit() for field in fields):
            return None
        quota, period = int(fields[0]), int(fields[1])
    else:
        quota = _read_number(level / "cpu.cfs_quota_us") or 0
        period = _read_number(level / "cpu.cfs_period_us") or 0
    return quota / period if quota > 0 and period > 0 else None


def _read_memory(level: Path, version: int) -> MemoryReading:
    numbers = _read_numbers(level / "memory.stat")
    if version == 2:
        usage = _read_number(level / "memory.current")
        limits = [_read_number(level / "memory.max")]
        droppable = numbers.get("inactive_file", 0)
    else:
        usage = _read_number(level / "memory.usage_in_bytes")
        # The second knows of levels above that a container is not shown.
        limits = [
            _read_number(level / "memory.limit_in_bytes"),
            numbers.get("hierarchical_memory_limit"),
        ]
        droppable = numbers.get("total_inactive_file", 0)
    known = [limit for limit in limits if limit is not None and limit < _NO_LIMIT_BYTES]
    return MemoryReading(
        used_bytes=None if usage is None else max(0, usage - droppable),
        limit_bytes=min(known, default=None),
    )


def _read_text(path: Path) -> str:
    return read_kernel_file(str(path)) or ""


def _read_number(path: Path) -> int | None:
    text = _read_text(path).strip()
    return int(text) if text.lstrip("-").isdigit() else None


def _read_numbers(path: Path) -> dict[str, int]:
    words = _read_text(path).split()
    pairs = zip(words[::2], words[1::2], strict=False)
    return {name: int(value) for name, value in pairs if value.isdigit()}
