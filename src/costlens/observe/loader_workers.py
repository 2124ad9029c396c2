"""The worker processes of data loaders: how many live, what CPU and memory they take, who died.

Watched loaders and Trainers tell which iterators there are, on the training thread; the pipeline
thread looks at the processes in ``/proc``. It keeps no iterator alive, whose end would then come on
the wrong thread, and asks no process object, for that would reap a child under the loader's feet.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costlens.core.host_records import LoaderPart
from costlens.observe.kernel_files import read_kernel_file
from costlens.observe.rising import RecentRate

__all__ = ["LoaderWorkers", "WorkerWatch"]

_PROC = Path("/proc")
_MAX_ITERATORS = 64
_MAX_WORKERS = 512

# Fields of proc(5), counted from the one after the command's closing parenthesis.
_STATE, _PARENT, _USER, _SYSTEM, _START, _RESIDENT = 0, 1, 11, 12, 19, 21
_DEAD_STATES = frozenset("ZX")


class LoaderWorkers:
    """The workers of data loaders by their process ids, with whether they are still wanted.

    Attributes:
        groups: By the ids of an iterator's workers, torch's own list of whether it still expects
            batches of each; it says so before it lets a worker go.
    """

    def __init__(self) -> None:
        self.groups: dict[tuple[int, ...], list[bool]] = {}

    def add(self, iterator: Any) -> None:  # noqa: ANN401 - torch's own, or anything else
        """Remember the workers of an iterator; training thread, once an epoch, about 3 µs.

        Args:
            iterator: What a loader iterates with; one without workers is ignored.
        """
        workers = getattr(iterator, "_workers", None)
        statuses = getattr(iterator, "_workers_status", None)
        if not isinstance(workers, list) or not isinstance(statuses, list):
            return
        pids = tuple(worker.pid for worker in workers if isinstance(worker.pid, int))
        if pids and len(pids) == len(statuses) and len(self.groups) < _MAX_ITERATORS:
            self.groups[pids] = statuses


@dataclass(slots=True)
class _Worker:
    start_ticks: int
    cpu_ticks: int = 0
    resident_bytes: int = 0
    is_alive: bool = True


class WorkerWatch:
    """Looks at the workers once a sample, on the pipeline thread; about 30 µs a worker.

    Args:
        known: Tells the iterators.
        proc: Where processes are looked up.
    """

    def __init__(self, known: LoaderWorkers, proc: Path = _PROC) -> None:
        self._known = known
        self._proc = proc
        self._parent = str(os.getpid())
        self._workers: dict[int, _Worker] = {}
        self._ended_ticks = 0
        self._num_died = 0
        self._has_seen = False
        self._rate = RecentRate()
        self._tick_s = 1 / os.sysconf("SC_CLK_TCK")
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")

    @property
    def num_died(self) -> int:
        """Return how many workers have ended without having been told to."""
        return self._num_died

    def look(self, now_ns: int) -> LoaderPart | None:
        """Return the state of the workers, None while none has been seen.

        Args:
            now_ns: Monotonic time.
        """
        groups = self._known.groups
        for pids, statuses in groups.copy().items():
            for index, pid in enumerate(pids):
                if pid in self._workers or len(self._workers) < _MAX_WORKERS:
                    self._look_at(pid, statuses, index)
            if not any(pid in self._workers and self._workers[pid].is_alive for pid in pids):
                groups.pop(pids, None)
                for pid in pids:
                    self._retire(self._workers.pop(pid, None))
        return self._sum_up(now_ns)

    def _look_at(self, pid: int, statuses: list[bool], index: int) -> None:
        worker = self._workers.get(pid)
        if worker is not None and not worker.is_alive:
            return
        stat = _read_stat(f"{self._proc}/{pid}/stat")
        if stat is not None and stat[_PARENT] != self._parent:
            stat = None  # the number has come to a process that is none of ours
        if worker is None:
            if stat is None:
                return
            worker = self._workers[pid] = _Worker(int(stat[_START]))
            self._has_seen = True
        if stat is not None and int(stat[_START]) == worker.start_ticks:
            worker.cpu_ticks = max(worker.cpu_ticks, int(stat[_USER]) + int(stat[_SYSTEM]))
            worker.resident_bytes = int(stat[_RESIDENT]) * self._page_bytes
            if stat[_STATE] not in _DEAD_STATES:
                return
        worker.is_alive = False
        worker.resident_bytes = 0
        # Asked after it was found dead: a loader first says that it is done with a worker.
        self._num_died += bool(statuses[index])

    def _retire(self, worker: _Worker | None) -> None:
        # The loader has let it go; what it took remains.
        self._ended_ticks += 0 if worker is None else worker.cpu_ticks

    def _sum_up(self, now_ns: int) -> LoaderPart | None:
        if not self._has_seen:
            return None
        alive = [worker for worker in self._workers.values() if worker.is_alive]
        ticks = self._ended_ticks + sum(worker.cpu_ticks for worker in self._workers.values())
        cpu_s = ticks * self._tick_s
        return LoaderPart(
            num_alive=len(alive),
            num_died=self._num_died,
            cpu_s=cpu_s,
            cpus_busy=self._rate.add(now_ns, cpu_s),
            memory_bytes=sum(worker.resident_bytes for worker in alive),
        )


def _read_stat(path: str) -> list[str] | None:
    text = read_kernel_file(path)
    fields = [] if text is None else text.rpartition(")")[2].split()
    return fields if len(fields) > _RESIDENT else None
