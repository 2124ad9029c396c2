"""The host's page of the metric catalogue, under OpenTelemetry's own names where there are any.

Each rank speaks for its process, its loader workers and its reads; local rank 0 for the machine
and its control group, so that sums over ranks count both once.
"""

from __future__ import annotations

from costlens.core.host_records import READ_BOUNDS_S
from costlens.export.host_readings import (
    CPU_MODES,
    cpu_seconds,
    field_of,
    many_of,
    read_durations,
    throttled_periods,
)
from costlens.export.metric import Metric
from costlens.export.readings import each

__all__ = ["HOST_METRICS", "HOST_PREFIXES"]

HOST_PREFIXES = ("process.", "system.", "container.")
"""Beginnings of names that an application's own instrumentation may report as well."""

_DISK = {"disk.io.direction": ("read", "write")}
_NETWORK = {"network.io.direction": ("receive", "transmit")}

HOST_METRICS: tuple[Metric, ...] = (
    # The process and its loader workers.
    Metric(
        "process.cpu.time",
        "counter",
        "s",
        "CPU time of this process, without the workers of data loaders.",
        many_of("cpu.mode", {"user": "process.cpu_user_s", "system": "process.cpu_system_s"}),
        {"cpu.mode": ("user", "system")},
        since="process",
    ),
    Metric(
        "process.memory.usage",
        "updowncounter",
        "By",
        "Physical memory in use by this process.",
        field_of("process.memory_bytes"),
    ),
    Metric(
        "process.disk.io",
        "counter",
        "By",
        "What this process has read from disks and written to them, caches left out.",
        many_of(
            "disk.io.direction",
            {"read": "process.disk_read_bytes", "write": "process.disk_write_bytes"},
        ),
        _DISK,
        since="process",
    ),
    Metric(
        "costlens.loader.workers",
        "updowncounter",
        "{worker}",
        "Workers of data loaders: alive, or died without having been told to end.",
        many_of("costlens.worker.state", {"alive": "loader.num_alive", "died": "loader.num_died"}),
        {"costlens.worker.state": ("alive", "died")},
    ),
    Metric(
        "costlens.loader.cpu.time",
        "counter",
        "s",
        "CPU time of all workers of data loaders so far.",
        field_of("loader.cpu_s"),
    ),
    Metric(
        "costlens.loader.memory.usage",
        "updowncounter",
        "By",
        "Physical memory of the live workers; pages they share count for each.",
        field_of("loader.memory_bytes"),
    ),
    # Counted file systems.
    Metric(
        "costlens.dataset.io",
        "counter",
        "By",
        "Bytes read through counted file systems, in this process and in loader workers.",
        field_of("reads.num_bytes"),
    ),
    Metric(
        "costlens.dataset.read.duration",
        "histogram",
        "s",
        "Durations of reads through counted file systems.",
        read_durations,
        bounds_s=READ_BOUNDS_S,
    ),
    Metric(
        "costlens.dataset.read.errors",
        "counter",
        "{error}",
        "Reads and opens of counted file systems that failed.",
        field_of("reads.num_errors"),
    ),
    # The machine.
    Metric(
        "system.cpu.time",
        "counter",
        "s",
        "CPU time of the machine by mode, summed over its CPUs.",
        each("cpu.mode", cpu_seconds),
        {"cpu.mode": CPU_MODES},
    ),
    Metric(
        "costlens.node.cpus",
        "gauge",
        "{cpu}",
        "CPUs of the machine.",
        field_of("node.num_cpus"),
    ),
    Metric(
        "system.memory.usage",
        "updowncounter",
        "By",
        "Physical memory of the machine in use: what cannot be had without swapping.",
        many_of("system.memory.state", {"used": "node.memory_used_bytes"}),
        {"system.memory.state": ("used",)},
    ),
    Metric(
        "system.memory.limit",
        "updowncounter",
        "By",
        "Physical memory of the machine.",
        field_of("node.memory_bytes"),
    ),
    Metric(
        "system.disk.io",
        "counter",
        "By",
        "Traffic of the machine's disks; a partition's is its disk's.",
        many_of(
            "disk.io.direction",
            {"read": "node.disk_read_bytes", "write": "node.disk_write_bytes"},
        ),
        _DISK,
    ),
    Metric(
        "system.network.io",
        "counter",
        "By",
        "Traffic of the machine's network devices, without loopback and bridges.",
        many_of(
            "network.io.direction",
            {"receive": "node.network_receive_bytes", "transmit": "node.network_transmit_bytes"},
        ),
        _NETWORK,
    ),
    Metric(
        "costlens.infiniband.io",
        "counter",
        "By",
        "Traffic of the machine's InfiniBand and RoCE ports; no part of the network's.",
        many_of(
            "network.io.direction",
            {
                "receive": "node.infiniband_receive_bytes",
                "transmit": "node.infiniband_transmit_bytes",
            },
        ),
        _NETWORK,
    ),
    # Its control group.
    Metric(
        "container.cpu.time",
        "counter",
        "s",
        "CPU time of the control group with the tightest limit.",
        field_of("container.cpu_s"),
    ),
    Metric(
        "costlens.container.cpu.limit",
        "gauge",
        "{cpu}",
        "CPUs that the control group may use.",
        field_of("container.cpu_limit"),
    ),
    Metric(
        "costlens.container.cpu.throttled.time",
        "counter",
        "s",
        "Time for which the limit stopped the control group, summed over CPUs.",
        field_of("container.throttled_s"),
    ),
    Metric(
        "costlens.container.cpu.periods",
        "counter",
        "{period}",
        "Periods of the CPU limit: throttled where it stopped somebody, else free.",
        each("costlens.period.outcome", throttled_periods),
        {"costlens.period.outcome": ("throttled", "free")},
    ),
    Metric(
        "container.memory.usage",
        "updowncounter",
        "By",
        "Memory of the control group that the kernel cannot simply drop.",
        field_of("container.memory_used_bytes"),
    ),
    Metric(
        "container.memory.available",
        "updowncounter",
        "By",
        "What is left of the control group's memory until the kernel kills a process.",
        field_of("container.memory_available_bytes"),
    ),
)
"""Metrics of the host, in the order in which documentation lists them."""
