"""Why a training waits for its batches: a model of the loader that feeds it.

A loop takes ``T`` seconds a batch, of which it waits ``w`` exposed. A loader of ``W`` workers that
cannot keep up works all the time, so a batch takes one worker ``L = W × T``; without workers the
loop makes its batches itself, in ``L = w``. With ``W'`` workers a batch takes
``max(T - w, L / W')``. What ``L`` consists of (reads, CPU, collating) says what to mend.

Only exposed waits count: what prefetching hides costs nothing (``time_s['data_wait']`` of a device
is ``min(device gap, host wait)`` already).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from costlens.diagnose.measures import MIN_SHARE, is_event, is_on_device, reach, rise

if TYPE_CHECKING:
    from costlens.core.records import RankRecord
    from costlens.diagnose.evidence import Evidence

__all__ = [
    "DataSupply",
    "count_worker_cpus",
    "find_supply",
    "is_paced_by_loader",
    "steady_wait_s",
]

# Half of what a batch takes: then no other part of it can be larger.
_MAIN_SHARE = 0.5

# Least looks that found the thread waiting for a share of them to mean anything: at half, one
# standard deviation of a share out of 8 is 18 %.
_LEAST_LOOKS = 8

# Batches that are late now and then, for some take longer to make, leave waits below it.
_PACED_SHARE = 0.1

# Taking a batch that a worker has ready (its queue, mapping its memory) took 1.3 ms for one small
# tensor on a busy machine, and is no wait that more workers would shorten.
_HANDOVER_S = 0.002

# The training thread keeps a CPU busy that it waits for its device with.
_OWN_CPUS = 1.0

# Workers that have the CPU for less than this share of their time wait for something else.
_BUSY_WORKER = 0.5

# CPUs of which so much is used are used up: the rest is the system's, and the sampling's.
_USED_UP = 0.85

# More workers than needed cost memory, fewer leave waits where batches take turns to be slow.
_HEADROOM = 1.1


@dataclass(frozen=True, slots=True)
class DataSupply:
    """How batches come to a rank that waits for them; times are seconds per batch.

    Args:
        cause: The finding that explains the wait; ``data_wait`` where nothing tells.
        batch_s: What an iteration takes.
        wait_s: The exposed wait in it.
        num_workers: Worker processes; None where that is not known.
        load_s: What one worker (or the loop itself) takes for a batch; None with the workers.
        read_s: Time in reads and opens; None where nobody counts them.
        cpu_s: CPU time of the workers, or at most of the loop for it; None unknown.
        collate_share: Share (0 to 1) of that which is collating: by the workers' own time, or by
            looks at a loop that waits for itself; None unknown.
        spare_cpus: CPUs for workers beside the training process; None where that is not known.
    """

    cause: str
    batch_s: float
    wait_s: float
    num_workers: int | None
    load_s: float | None = None
    read_s: float | None = None
    cpu_s: float | None = None
    collate_share: float | None = None
    spare_cpus: float | None = None

    @property
    def enough_workers(self) -> int:
        """Return the workers with which nobody would wait, as far as there are CPUs to spare."""
        rest_s = self.batch_s - self.wait_s
        if self.load_s is None or rest_s <= 0:
            return max(1, int(self.spare_cpus or 1))
        enough = math.ceil(_HEADROOM * self.load_s / rest_s)
        # A worker that waits for a read leaves its CPU to the others.
        busy = 1.0 if not self.cpu_s else min(1.0, self.cpu_s / self.load_s)
        most = enough if self.spare_cpus is None else int(self.spare_cpus / max(busy, 0.1))
        return max(1, min(enough, most))

    def saved_s(self, num_workers: int, load_s: float | None = None) -> float:
        """Return what a batch would take less, 0 where nothing.

        Args:
            num_workers: Workers, >= 1.
            load_s: What one takes for a batch; as now by default.
        """
        load_s = self.load_s if load_s is None else load_s
        rest_s = self.batch_s - self.wait_s
        return self.batch_s - min(self.batch_s, max(rest_s, (load_s or 0.0) / num_workers))


def steady_wait_s(evidence: Evidence) -> float:
    """Return the exposed waits for batches without those at the beginning of passes, in seconds."""
    first_s = rise(evidence, "loading", "first_wait_s") or 0.0
    return max(0.0, evidence.time_s["data_wait"] - first_s)


def find_supply(evidence: Evidence, least_share: float = MIN_SHARE) -> DataSupply | None:
    """Return why a training waits for data; None where it hardly does, or only in an event.

    Args:
        evidence: The evidence.
        least_share: Share (0 to 1) of the iterations below which waits are hardly any.
    """
    wait_s, num = steady_wait_s(evidence), evidence.num_iterations
    if num <= 0 or wait_s < least_share * evidence.iteration_s or is_event(evidence, wait_s):
        return None
    batch_s, wait_s = evidence.iteration_s / num, wait_s / num
    num_workers = _count_workers(evidence.now)
    # Who asks for less has seen that it adds up to more than that, over many ranks.
    is_alone = least_share >= MIN_SHARE
    if num_workers and is_alone and wait_s - _HANDOVER_S < least_share * batch_s:
        return None
    if num_workers is None:
        return DataSupply("data_wait", batch_s, wait_s, None)
    read_s = _read_s(evidence, num)
    if num_workers == 0:
        # What the loop takes to make a batch, hidden behind its device or not.
        load_s = max(wait_s, evidence.host_s["data_wait"] / num)
        collate, read = (_look_share(evidence, name) for name in ("in_collate", "in_read"))
        seen_s = None if read is None else read * load_s
        read_s = max((s for s in (read_s, seen_s) if s is not None), default=None)
        cause = _name_own(load_s, read_s, collate)
        # How much of its CPU time goes into batches nobody tells: at most all of it.
        busy = _busy_cpus(evidence)
        cpu_s = None if busy is None else min(load_s, busy * batch_s)
        spare = _spare_cpus(evidence, 0.0 if busy is None else busy - (cpu_s or 0.0) / batch_s)
        return DataSupply(cause, batch_s, wait_s, 0, load_s, read_s, cpu_s, collate, spare)
    spare = count_worker_cpus(evidence)
    load_s = num_workers * batch_s
    total_s = rise(evidence, "host", "loader", "cpu_s")
    cpu_s = None if total_s is None else total_s / num
    collated_s = rise(evidence, "loading", "collate_s")
    collate = None if collated_s is None else min(1.0, collated_s / num / load_s)
    spare_s = None if spare is None else spare * batch_s
    cause = _name_workers(num_workers, load_s, read_s, cpu_s, spare_s)
    if collate is not None and collate >= _MAIN_SHARE:
        cause = "slow_collate"
    return DataSupply(cause, batch_s, wait_s, num_workers, load_s, read_s, cpu_s, collate, spare)


def count_worker_cpus(evidence: Evidence) -> float | None:
    """Return the CPUs that a rank's workers may use beside it, >= 1; None where nobody tells."""
    return _spare_cpus(evidence, _busy_cpus(evidence) or 0.0)


def is_paced_by_loader(evidence: Evidence) -> bool:
    """Return whether a loader's workers set the pace: a faster iteration would only wait longer.

    Args:
        evidence: The evidence.
    """
    supply = evidence.supply
    if supply is None or supply.num_workers == 0:
        return False
    return supply.wait_s >= _PACED_SHARE * supply.batch_s


def _name_own(load_s: float, read_s: float | None, collate_share: float | None) -> str:
    """Return the cause in a loop that makes its batches itself."""
    if read_s is not None and read_s >= _MAIN_SHARE * load_s:
        return "storage_read"
    if collate_share is not None and collate_share >= _MAIN_SHARE:
        return "slow_collate"
    return "data_preprocessing"


def _name_workers(
    num: int, load_s: float, read_s: float | None, cpu_s: float | None, spare_s: float | None
) -> str:
    """Return the cause where workers are behind; seconds of each per batch, and of CPU to spare."""
    if read_s is not None and read_s >= _MAIN_SHARE * load_s:
        return "storage_read"
    if cpu_s is None:
        return "data_wait"
    if spare_s is not None and cpu_s >= _USED_UP * spare_s:
        return "data_preprocessing"
    # Whatever a single worker waits for, it waits for it once at a time. Several may be waiting for
    # one another, or for something that has no more to give.
    return "too_few_workers" if num == 1 or cpu_s >= _BUSY_WORKER * load_s else "data_wait"


def _count_workers(record: RankRecord) -> int | None:
    if record.loading is not None and record.loading.num_workers is not None:
        return record.loading.num_workers
    alive = reach(record, "host", "loader", "num_alive")
    return int(alive) if alive else None


def _read_s(evidence: Evidence, num: int) -> float | None:
    read_s, open_s = (rise(evidence, "host", "reads", name) for name in ("read_s", "open_s"))
    return None if read_s is None else (read_s + (open_s or 0.0)) / num


def _look_share(evidence: Evidence, name: str) -> float | None:
    seen, found = (rise(evidence, "looks", field) for field in ("num_waiting", name))
    return None if seen is None or seen < _LEAST_LOOKS else (found or 0.0) / seen


def _busy_cpus(evidence: Evidence) -> float | None:
    """Return the CPUs that the training process keeps busy, without its workers."""
    if evidence.before is not None and evidence.before.host is not None:
        user, system = (
            rise(evidence, "host", "process", name) for name in ("cpu_user_s", "cpu_system_s")
        )
        if user is not None and system is not None and evidence.total_s > 0:
            return (user + system) / evidence.total_s
    return reach(evidence.now, "host", "process", "cpus_busy")


def _spare_cpus(evidence: Evidence, busy: float) -> float | None:
    """Return this rank's share of the CPUs it may run on, less those that are busy training."""
    usable = reach(evidence.now, "host", "process", "usable_cpus")
    if usable is None:
        return None
    own = usable / evidence.now.rank.local_world_size
    return max(1.0, own - max(_OWN_CPUS if is_on_device(evidence) else 0.0, busy))
