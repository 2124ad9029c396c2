"""What a rank's record says about its host: the process, its loader workers, the node around them.

``observe/host_probe.py`` fills it. Sums count from the first sample of the attempt, so that two
records of one attempt can be subtracted; absent means unknown. A process speaks for itself, the
rank with local rank 0 for the node and the container, so that nothing is counted twice.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from costlens.core.part import Part, Ratio, Seconds, Tally

__all__ = [
    "READ_BOUNDS_S",
    "ContainerPart",
    "HostPart",
    "HostSummary",
    "LoaderPart",
    "NodePart",
    "ProcessPart",
    "ReadsPart",
]

# As in core/records.py: far beyond what a machine reaches.
Cpus = Annotated[float, Field(ge=0, lt=1e6, allow_inf_nan=False)]

READ_BOUNDS_S: tuple[float, ...] = (0.0001, 0.001, 0.01, 0.1, 1.0, 10.0)
"""Upper bounds of the histogram of reads, in seconds: from the page cache to a distant bucket."""


class ProcessPart(Part):
    """This rank's own process, without its children."""

    cpu_user_s: Seconds | None = Field(None, description="CPU seconds since the process began.")
    cpu_system_s: Seconds | None = None
    cpus_busy: Cpus | None = Field(None, description="CPUs kept busy over the last 10 s.")
    ended_children_s: Seconds | None = Field(
        None, description="CPU seconds of children that have ended, loader workers among them."
    )
    memory_bytes: Tally | None = Field(None, description="Physical memory in use.")
    num_threads: Tally | None = None
    voluntary_switches: Tally | None = None
    involuntary_switches: Tally | None = Field(
        None, description="Times that another process took the CPU away."
    )
    disk_read_bytes: Tally | None = Field(None, description="Read from disks, not from caches.")
    disk_write_bytes: Tally | None = None
    usable_cpus: Cpus | None = Field(
        None, description="CPUs this process may run on, by affinity and the container's limit."
    )


class LoaderPart(Part):
    """The worker processes of this rank's data loaders."""

    num_alive: Tally = 0
    num_died: Tally = Field(0, description="Workers that ended without having been told to.")
    cpu_s: Seconds = Field(
        0.0, description="CPU seconds of all workers so far; the last 2 s of each may be missing."
    )
    cpus_busy: Cpus | None = Field(None, description="CPUs kept busy over the last 10 s.")
    memory_bytes: Tally | None = Field(
        None, description="Physical memory of the live workers; shared pages count for each."
    )


class ReadsPart(Part):
    """Reads of counted file systems (``run.filesystem``), in all processes of this rank."""

    num_reads: Tally = 0
    num_bytes: Tally = Field(0, description="Bytes that the callers got.")
    num_errors: Tally = Field(0, description="Reads and opens that raised.")
    num_opens: Tally = 0
    open_s: Seconds = Field(0.0, description="Time in opening files.")
    read_s: Seconds = Field(0.0, description="Time in reads, summed over all processes.")
    max_s: Seconds = Field(0.0, description="The longest read.")
    bounds_s: list[float] = Field(default_factory=list, max_length=32)
    buckets: list[Tally] = Field(
        default_factory=list, max_length=33, description="Reads per duration, and one above."
    )
    bytes_per_s: float | None = Field(None, description="Throughput over the last 10 s.", ge=0)
    num_uncounted: Tally = Field(
        0, description="Processes and threads for which there was no room to count."
    )


class NodePart(Part):
    """The machine (or what the container sees as one)."""

    id: str | None = Field(None, description="Hash of the machine's boot: same for all its ranks.")
    num_cpus: Tally | None = None
    cpu_s: dict[str, Seconds] = Field(
        default_factory=dict, description="CPU seconds by mode, summed over the CPUs."
    )
    cpu_ratio: Ratio | None = Field(None, description="Busy share of all CPUs over the last 10 s.")
    memory_bytes: Tally | None = Field(None, description="Physical memory of the machine.")
    memory_used_bytes: Tally | None = None
    memory_available_bytes: Tally | None = Field(
        None, description="What can be had without swapping."
    )
    disk_read_bytes: Tally | None = Field(None, description="From whole disks, not partitions.")
    disk_write_bytes: Tally | None = None
    network_receive_bytes: Tally | None = Field(
        None, description="Over the network's devices; neither loopback nor bridges."
    )
    network_transmit_bytes: Tally | None = None
    infiniband_receive_bytes: Tally | None = Field(
        None, description="Over the ports of InfiniBand and RoCE; not part of the network's."
    )
    infiniband_transmit_bytes: Tally | None = None
    infiniband_unknown: str | None = Field(
        None, description="Why a port's counters are left out, where some are."
    )


class ContainerPart(Part):
    """The control group of the process, at the level whose limit is the tightest."""

    cpu_s: Seconds | None = Field(None, description="CPU seconds of all its processes.")
    cpu_limit: Cpus | None = Field(None, description="CPUs it may use; absent without a limit.")
    cpu_ratio: Ratio | None = Field(None, description="Share of that limit used, last 10 s.")
    num_periods: Tally | None = Field(None, description="Periods in which the limit applied.")
    num_throttled: Tally | None = Field(None, description="Periods in which it stopped somebody.")
    throttled_s: Seconds | None = Field(
        None, description="Time stopped by the limit, summed over the CPUs."
    )
    throttled_ratio: Ratio | None = Field(None, description="Throttled periods, last 10 s.")
    memory_used_bytes: Tally | None = Field(
        None, description="Memory in use that the kernel cannot simply drop."
    )
    memory_limit_bytes: Tally | None = None
    memory_available_bytes: Tally | None = Field(
        None, description="What is left until the kernel kills somebody."
    )


class HostPart(Part):
    """The host as one rank sees it."""

    sampled_s: Seconds = Field(0.0, description="From the first sample of the attempt to this one.")
    process: ProcessPart | None = None
    loader: LoaderPart | None = Field(None, description="Absent until workers were seen.")
    reads: ReadsPart | None = Field(None, description="Absent where nobody asked to count them.")
    node: NodePart | None = Field(None, description="From local rank 0 only.")
    container: ContainerPart | None = Field(None, description="From local rank 0 only.")


class HostSummary(Part):
    """One host in the newest attempt that ran on it: sums over its ranks, and the machine once."""

    host_name: str
    attempt: int
    num_ranks: Tally
    process_cpus: Cpus | None = Field(
        None, description="CPUs that the ranks' processes kept busy, mean over their time."
    )
    process_memory_bytes: Tally | None = None
    loader_cpus: Cpus | None = Field(
        None, description="CPUs that loader workers kept busy, mean over their ranks' time."
    )
    loader: LoaderPart | None = None
    reads: ReadsPart | None = None
    node: NodePart | None = Field(
        None, description="Absent where another host of the run is the same machine."
    )
    container: ContainerPart | None = None
