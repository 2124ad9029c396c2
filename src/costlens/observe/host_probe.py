"""The probe of the host: process, loader workers, node and container, every 2 s.

Runs on the pipeline thread; the readers stand in ``host``, ``cgroup``, ``infiniband`` and
``loader_workers``. Rates are of the last 10 s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from costlens.core.attempt_state import AttemptState
from costlens.core.clock import NS_PER_S
from costlens.core.host_records import ContainerPart, HostPart, NodePart, ProcessPart, ReadsPart
from costlens.observe import host
from costlens.observe.all_reduce import AllReduceWatch
from costlens.observe.cgroup import Cgroups, CpuReading, find_cgroups
from costlens.observe.infiniband import find_ports, read_ports
from costlens.observe.loader_workers import LoaderWorkers, WorkerWatch
from costlens.observe.loading import TrainingLoader
from costlens.observe.rising import RecentRate, RisingSum

__all__ = ["HostProbe", "HostSources"]

_ROOT = Path("/")
_MAX_TOLD = 3


@dataclass(slots=True)
class HostSources:
    """What a run tells about what goes on beside its own thread.

    Args:
        workers: The workers of data loaders.
        loader: The loader that is trained from.
        all_reduce: The DDP module that is trained.
        read_counts: Returns what was read through counted file systems, None where none is used.
    """

    workers: LoaderWorkers = field(default_factory=LoaderWorkers)
    loader: TrainingLoader = field(default_factory=TrainingLoader)
    all_reduce: AllReduceWatch = field(default_factory=AllReduceWatch)
    read_counts: Callable[[], ReadsPart | None] = lambda: None


class HostProbe:
    """Reads the host; the rank with local rank 0 also reads what all ranks of the node share.

    Args:
        state: The attempt; its rank says for what it speaks.
        sources: What the run tells.
        root: Where ``proc`` and ``sys`` are looked for.
    """

    name = "host"

    def __init__(
        self,
        state: AttemptState,
        sources: HostSources,
        *,
        root: Path = _ROOT,
    ) -> None:
        self._state = state
        self._workers = WorkerWatch(sources.workers, root / "proc")
        self._sources = sources
        self._root = root
        self._process: psutil.Process | None = None
        self._cgroups = Cgroups({})
        self._node: _Node | None = None
        self._container = _Container()
        self._part: HostPart | None = None
        self._start_ns: int | None = None
        self._process_rate = RecentRate()
        self._read_rate = RecentRate()
        self._num_told = 0

    def load(self) -> None:
        """Do nothing: psutil is there already."""

    def start(self) -> None:
        """Find what is to be read; about 1 ms."""
        self._process = psutil.Process()
        self._cgroups = find_cgroups(self._root)
        if self._state.rank.local_rank == 0 and self._node is None:
            self._node = _Node(self._root)

    def sample(self, now_ns: int) -> None:
        """Read everything; about 0.5 ms, and 30 µs a worker.

        Args:
            now_ns: Monotonic time of the sample.
        """
        if self._process is None:
            return
        if self._start_ns is None:
            self._start_ns = now_ns
        is_first = self._state.rank.local_rank == 0
        cpu = self._cgroups.read_cpu()
        died = self._workers.num_died
        self._part = HostPart(
            sampled_s=max(0, now_ns - self._start_ns) / NS_PER_S,
            process=self._read_process(now_ns, cpu),
            loader=self._workers.look(now_ns),
            reads=self._read_reads(now_ns),
            node=self._node.read(now_ns) if is_first and self._node is not None else None,
            container=self._container.read(now_ns, cpu, self._cgroups) if is_first else None,
        )
        if self._workers.num_died > died:
            self._tell(self._workers.num_died - died)

    def contribute(self) -> Mapping[str, object]:
        """Return the newest sample."""
        return {} if self._part is None else {"host": self._part}

    def stop(self) -> None:
        """Do nothing: no file is kept open."""

    def _read_process(self, now_ns: int, cpu: CpuReading | None) -> ProcessPart | None:
        if self._process is None:
            return None
        seen = host.read_process(self._process)
        user, system = seen["cpu_user_s"], seen["cpu_system_s"]
        total = None if user is None or system is None else user + system
        usable = [host.count_usable_cpus(), None if cpu is None else cpu.limit]
        return ProcessPart.model_validate(
            {
                **seen,
                "cpus_busy": self._process_rate.add(now_ns, total),
                "usable_cpus": min((n for n in usable if n is not None), default=None),
            }
        )

    def _read_reads(self, now_ns: int) -> ReadsPart | None:
        seen = self._sources.read_counts()
        rate = self._read_rate.add(now_ns, None if seen is None else seen.num_bytes)
        return None if seen is None else seen.model_copy(update={"bytes_per_s": rate})

    def _tell(self, num_died: int) -> None:
        self._num_told += 1
        if self._num_told <= _MAX_TOLD:
            self._state.log.warning(
                "costlens.loader.worker_died",
                num_workers=num_died,
                message=f"{num_died} worker(s) of a data loader ended without having been told to",
            )


class _Node:
    """The machine, read by one of its ranks."""

    def __init__(self, root: Path) -> None:
        self._id = host.node_id(root)
        self._disks = host.list_disks(root)
        self._networks = host.list_networks(root)
        self._ports = find_ports(root)
        self._sums: dict[str, RisingSum] = {}
        self._busy_rate = RecentRate()
        self._all_rate = RecentRate()

    def read(self, now_ns: int) -> NodePart:
        """Return the machine's part of a sample; about 0.3 ms."""
        modes = {mode: self._add(mode, {"": s}) or 0.0 for mode, s in host.read_cpu_modes().items()}
        memory = host.read_or_none(psutil.virtual_memory)
        disks = host.read_or_none(lambda: psutil.disk_io_counters(perdisk=True, nowrap=False))
        networks = host.read_or_none(lambda: psutil.net_io_counters(pernic=True, nowrap=False))
        ports = read_ports(self._ports)
        counted = {
            "disk_read_bytes": host.sum_io(disks, self._disks, "read_bytes"),
            "disk_write_bytes": host.sum_io(disks, self._disks, "write_bytes"),
            "network_receive_bytes": host.sum_io(networks, self._networks, "bytes_recv"),
            "network_transmit_bytes": host.sum_io(networks, self._networks, "bytes_sent"),
            "infiniband_receive_bytes": ports.receive,
            "infiniband_transmit_bytes": ports.transmit,
        }
        return NodePart.model_validate(
            {
                **{name: self._add(name, values) for name, values in counted.items()},
                "id": self._id,
                "num_cpus": psutil.cpu_count(),
                "cpu_s": modes,
                "cpu_ratio": self._busy_ratio(now_ns, modes),
                "memory_bytes": None if memory is None else memory.total,
                "memory_used_bytes": None if memory is None else memory.total - memory.available,
                "memory_available_bytes": None if memory is None else memory.available,
                "infiniband_unknown": ports.unknown,
            }
        )

    def _add(self, name: str, values: Mapping[str, float] | None) -> float | None:
        return None if values is None else self._sums.setdefault(name, RisingSum()).add(values)

    def _busy_ratio(self, now_ns: int, modes: Mapping[str, float]) -> float | None:
        if not modes:
            return None
        # By the kernel's own time and not ours: it is that in which the modes add up to all.
        waiting = ("idle", "iowait")
        busy = self._busy_rate.add(now_ns, sum(s for m, s in modes.items() if m not in waiting))
        every = self._all_rate.add(now_ns, sum(modes.values()))
        return None if busy is None or not every else min(1.0, busy / every)


class _Container:
    """The control groups, read by one of the ranks in them."""

    def __init__(self) -> None:
        self._sums: dict[str, RisingSum] = {}
        self._rates: dict[str, RecentRate] = {}

    def read(self, now_ns: int, cpu: CpuReading | None, cgroups: Cgroups) -> ContainerPart | None:
        """Return the container's part of a sample; None outside of one."""
        memory = cgroups.read_memory()
        if cpu is None and memory is None:
            return None
        cpu = cpu or CpuReading()
        counted = {
            "cpu_s": cpu.usage_s,
            "num_periods": cpu.num_periods,
            "num_throttled": cpu.num_throttled,
            "throttled_s": cpu.throttled_s,
        }
        sums = {
            name: None
            if value is None
            else self._sums.setdefault(name, RisingSum()).add({"": value})
            for name, value in counted.items()
        }
        rates = {
            name: self._rates.setdefault(name, RecentRate()).add(now_ns, value)
            for name, value in sums.items()
        }
        return ContainerPart.model_validate(
            {
                **sums,
                "cpu_limit": cpu.limit,
                "cpu_ratio": _divide(rates["cpu_s"], cpu.limit),
                "throttled_ratio": _divide(rates["num_throttled"], rates["num_periods"]),
                "memory_used_bytes": None if memory is None else memory.used_bytes,
                "memory_limit_bytes": None if memory is None else memory.limit_bytes,
                "memory_available_bytes": None if memory is None else memory.available_bytes,
            }
        )


def _divide(part: float | None, whole: float | None) -> float | None:
    """Return a share of 0 to 1, None where one of them is not known or nothing was there."""
    return None if part is None or not whole else min(1.0, part / whole)
