"""Does the machine keep up: CPUs, memory, loaders, storage and network."""

from __future__ import annotations

from grafana.names import select
from grafana.panel import Panel, prom
from grafana.queries import RANK, THE_RANKS, increase, rate

__all__ = [
    "CONTAINER_MEMORY",
    "CPU",
    "CPU_LIMIT",
    "DATASET",
    "DISKS",
    "LOADERS",
    "LOADER_CPU",
    "MACHINE_MEMORY",
    "NETWORK",
    "PROCESS_MEMORY",
    "READS",
    "READ_ERRORS",
]

_BUSY = 'cpu_mode!="idle"'
_BUCKETS = f"sum by (le) ({rate('costlens.dataset.read.duration', THE_RANKS, part='bucket')})"

CPU = Panel(
    "What do the machine's CPUs do?",
    "CPUs in use by mode, of the busiest machine of the chosen ranks, and how many it has. iowait: "
    "storage is slow; steal: another virtual machine has them.",
    "none",
    (
        prom(f"max by (cpu_mode) ({rate('system.cpu.time', THE_RANKS, _BUSY)})", "{{cpu_mode}}"),
        prom(f"max({select('costlens.node.cpus', THE_RANKS)})", "CPUs"),
    ),
    decimals=1,
    least=0,
)
LOADER_CPU = Panel(
    "Who uses the CPUs: the training or its loaders?",
    "CPUs in use by the process of each rank, and by the workers of its data loaders. Loaders at "
    "their number of workers cannot go faster: add workers or make their work cheaper.",
    "none",
    (
        prom(
            f"sum by ({RANK}) ({rate('process.cpu.time', THE_RANKS)})",
            "rank {{costlens_rank}} process",
        ),
        prom(
            f"sum by ({RANK}) ({rate('costlens.loader.cpu.time', THE_RANKS)})",
            "rank {{costlens_rank}} loaders",
        ),
    ),
    decimals=2,
    least=0,
)
LOADERS = Panel(
    "Do the loader workers live?",
    "Workers of data loaders: alive, or died without having been told to end.",
    "none",
    (
        prom(
            f"sum by (costlens_worker_state) ({select('costlens.loader.workers', THE_RANKS)})",
            "{{costlens_worker_state}}",
        ),
    ),
    decimals=0,
    least=0,
)
PROCESS_MEMORY = Panel(
    "Does the process grow?",
    "Physical memory of each rank's process and of its loader workers. A line that climbs without "
    "end is a leak: the machine will end it.",
    "bytes",
    (
        prom(
            f"max by ({RANK}) ({select('process.memory.usage', THE_RANKS)})",
            "rank {{costlens_rank}} process",
        ),
        prom(
            f"max by ({RANK}) ({select('costlens.loader.memory.usage', THE_RANKS)})",
            "rank {{costlens_rank}} loaders",
        ),
    ),
    least=0,
)
MACHINE_MEMORY = Panel(
    "Does the machine have memory left?",
    "Memory in use that cannot be had without swapping, and what there is, of the fullest machine.",
    "bytes",
    (
        prom(f"max({select('system.memory.usage', THE_RANKS)})", "in use"),
        prom(f"min({select('system.memory.limit', THE_RANKS)})", "there is"),
    ),
    least=0,
)
CONTAINER_MEMORY = Panel(
    "Does the container have memory left?",
    "Memory of the control group, and what is left until the kernel kills a process.",
    "bytes",
    (
        prom(
            f"max by ({RANK}) ({select('container.memory.usage', THE_RANKS)})",
            "rank {{costlens_rank}} in use",
        ),
        prom(
            f"min by ({RANK}) ({select('container.memory.available', THE_RANKS)})",
            "rank {{costlens_rank}} left",
        ),
    ),
    least=0,
)
CPU_LIMIT = Panel(
    "Does a CPU limit hold it back?",
    "CPUs that the control group uses and may use, and CPUs' worth of time for which the limit "
    "stopped it.",
    "none",
    (
        prom(
            f"max by ({RANK}) ({rate('container.cpu.time', THE_RANKS)})", "rank {{costlens_rank}}"
        ),
        prom(f"min({select('costlens.container.cpu.limit', THE_RANKS)})", "limit"),
        prom(
            f"max by ({RANK}) ({rate('costlens.container.cpu.throttled.time', THE_RANKS)})",
            "rank {{costlens_rank}} stopped",
        ),
    ),
    decimals=2,
    least=0,
)
DISKS = Panel(
    "What do the disks carry?",
    "Traffic of the machine's disks by direction, and what the chosen ranks' processes read and "
    "write, caches left out.",
    "Bps",
    (
        prom(
            f"max by (disk_io_direction) ({rate('system.disk.io', THE_RANKS)})",
            "machine {{disk_io_direction}}",
        ),
        prom(
            f"sum by (disk_io_direction) ({rate('process.disk.io', THE_RANKS)})",
            "processes {{disk_io_direction}}",
        ),
    ),
    least=0,
)
NETWORK = Panel(
    "What does the network carry?",
    "Traffic of the busiest machine by direction: its network devices, and InfiniBand or RoCE "
    "where it has ports.",
    "Bps",
    (
        prom(
            f"max by (network_io_direction) ({rate('system.network.io', THE_RANKS)})",
            "network {{network_io_direction}}",
        ),
        prom(
            f"max by (network_io_direction) ({rate('costlens.infiniband.io', THE_RANKS)})",
            "InfiniBand {{network_io_direction}}",
        ),
    ),
    least=0,
)
DATASET = Panel(
    "How fast does the data set come in?",
    "Bytes read through counted file systems, in the chosen ranks and their loader workers.",
    "Bps",
    (prom(f"sum({rate('costlens.dataset.io', THE_RANKS)})", "read"),),
    least=0,
)
READS = Panel(
    "Is the storage slow?",
    "How long reads of the data set take, of counted file systems. Above the line an alert fires.",
    "s",
    (
        prom(f"histogram_quantile(0.5, {_BUCKETS})", "median", has_exemplars=True),
        prom(f"histogram_quantile(0.99, {_BUCKETS})", "99th percentile", has_exemplars=True),
    ),
    limit="read_s",
    least=0,
)
READ_ERRORS = Panel(
    "Do reads of the data set fail?",
    "Reads and opens of counted file systems that failed.",
    "none",
    (prom(f"sum({increase('costlens.dataset.read.errors', THE_RANKS)})", "failed"),),
    decimals=0,
    least=0,
)
