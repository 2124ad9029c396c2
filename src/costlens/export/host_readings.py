"""How the host's page of the metric catalogue reads a snapshot.

Pure functions over the host's part of the rank's record, once a window on the pipeline thread. A
field is named by its part and its name, such as ``node.num_cpus``; what is absent yields no point.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from costlens.core.clock import NS_PER_S
from costlens.core.host_records import HostPart
from costlens.core.snapshot import Snapshot
from costlens.core.window import Histogram
from costlens.export.readings import Point, Read, each, one

__all__ = [
    "CPU_MODES",
    "cpu_seconds",
    "field_of",
    "look_up",
    "many_of",
    "read_durations",
    "throttled_periods",
]

CPU_MODES = ("user", "system", "iowait", "steal", "idle")


def look_up(host: HostPart | None, path: str) -> float | None:
    """Return a number of the host's part, None where it or its part is absent.

    Args:
        host: The part.
        path: Name of the part and of its field, such as ``node.num_cpus``.
    """
    part_name, _, name = path.partition(".")
    part = None if host is None else getattr(host, part_name)
    value: float | None = None if part is None else getattr(part, name)
    return value


def field_of(path: str) -> Read:
    """Return a reader of one field."""
    return one(lambda snapshot: look_up(snapshot.record.host, path))


def many_of(attribute: str, paths: Mapping[str, str]) -> Read:
    """Return a reader of several fields, each with a value of an attribute."""

    def read(snapshot: Snapshot) -> Mapping[str, float | None]:
        return {value: look_up(snapshot.record.host, path) for value, path in paths.items()}

    return each(attribute, read)


def cpu_seconds(snapshot: Snapshot) -> Mapping[str, float | None]:
    """Return the CPU seconds of the machine by mode."""
    host = snapshot.record.host
    modes = {} if host is None or host.node is None else host.node.cpu_s
    return {mode: modes.get(mode) for mode in CPU_MODES}


def throttled_periods(snapshot: Snapshot) -> Mapping[str, float | None]:
    """Return the periods of a CPU limit by whether it stopped somebody in them."""
    host = snapshot.record.host
    every, throttled = (look_up(host, f"container.{n}") for n in ("num_periods", "num_throttled"))
    if every is None or throttled is None:
        return {}
    return {"throttled": throttled, "free": every - throttled}


def read_durations(snapshot: Snapshot) -> Iterable[Point]:
    """Return the histogram of counted reads; nothing where none are counted."""
    reads = None if snapshot.record.host is None else snapshot.record.host.reads
    if reads is None:
        return []
    sum_ns = round(reads.read_s * NS_PER_S)
    return [({}, Histogram([*reads.buckets], reads.num_reads, sum_ns, tuple(reads.bounds_s)))]
