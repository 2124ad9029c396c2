"""What the probes of the host tell of a simulated rank: process, workers, reads, loader, torch."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from benchmarks.diagnosis.job import Job
from benchmarks.diagnosis.meters import Meters
from costlens.core.clock import NS_PER_S
from costlens.core.host_records import (
    READ_BOUNDS_S,
    HostPart,
    LoaderPart,
    NodePart,
    ProcessPart,
    ReadsPart,
)
from costlens.core.loading_records import LoadingPart, LooksPart
from costlens.core.phases import ITERATION_PHASES, Phase
from costlens.core.torch_records import AllReducePart, CompilerPart

__all__ = ["HostFacts"]

_SAMPLE_S = 2.0
_RATE_S = 10.0
_LOOKS_PER_S = 5.0
_WORKER_BYTES = 400 * 2**20
_PROCESS_BYTES = 6 * 2**30
_NODE_BYTES = 1 << 40
_ITERATING = [int(phase) for phase in ITERATION_PHASES if phase is not Phase.DATA_WAIT]
_INLINE = {"in_read": "inline_read_s", "in_collate": "inline_collate_s", "in_queue": "queue_wait_s"}


class HostFacts:
    """Looks at the host of one rank.

    Args:
        job: The job.
        meters: What the rank did.
        rng: For the noise.
    """

    def __init__(self, job: Job, meters: Meters, rng: np.random.Generator) -> None:
        self.job, self._meters, self._rng = job, meters, rng
        self._sampled_s = meters.trace.begin_s
        self._looks = dict.fromkeys(
            ("num_waiting", "in_dataset", "in_collate", "in_read", "in_queue"), 0
        )
        self._looks |= {"num_iterating": 0, "in_sync": 0}
        self._looked = dict.fromkeys((*_INLINE, "waiting", "iterating", "sync"), 0.0)

    def take(self, now_s: float, phase_ns: list[int], pass_wait_ns: int) -> dict[str, object]:
        """Return the fields of the record at ``now_s``.

        Args:
            now_s: The end of the window.
            phase_ns: Nanoseconds of the host per phase.
            pass_wait_ns: Waits for the first batches of passes.
        """
        job, read = self.job, self._meters.read
        self._sampled_s = max(self._sampled_s, now_s - float(self._rng.uniform(0, _SAMPLE_S)))
        startup_s = 0.5 * job.first_iteration_s
        num_compiles = 1 + round(read("num_compiles", now_s))
        return {
            "host": self._host(self._sampled_s),
            "loading": LoadingPart(
                num_workers=job.num_workers,
                prefetch_factor=job.prefetch_factor if job.num_workers else None,
                pin_memory=job.pin_memory,
                persistent_workers=job.is_persistent if job.num_workers else False,
                batch_size=job.batch_size,
                num_passes=int(read("num_epochs", now_s)),
                first_wait_s=pass_wait_ns / NS_PER_S,
                collate_s=None
                if job.is_lightning or not job.num_workers
                else read("collate_s", now_s),
            ),
            "looks": LooksPart(**self._look(now_s, phase_ns)),
            "compiler": CompilerPart(
                num_compilations=num_compiles,
                compile_s=startup_s + read("compile_s", now_s),
                num_startup=1,
                startup_s=startup_s,
            )
            if job.compile_every
            else None,
            "all_reduce": self._all_reduce(now_s),
            "stopped_s": read("stopped_s", now_s),
        }

    def _all_reduce(self, now_s: float) -> AllReducePart | None:
        """Add up what DDP has timed; who asks every 2 s hears of the newest only."""
        newest = {
            int(s / _SAMPLE_S): held_s for s, held_s in self._meters.trace.reduces if s < now_s
        }
        if not newest:
            return None
        return AllReducePart(
            num_sampled=len(newest),
            exposed_s=sum(newest.values()),
            least_exposed_s=min(newest.values()),
        )

    def _host(self, now_s: float) -> HostPart:
        job, trace, read = self.job, self._meters.trace, self._meters.read
        earlier_s = max(trace.begin_s, now_s - _RATE_S)
        over_s = max(1e-9, now_s - earlier_s)

        def rate(name: str) -> float:
            return max(0.0, read(name, now_s) - read(name, earlier_s)) / over_s

        # A process may run on all CPUs of its node, which the other ranks do as well.
        ranks = min(job.ranks_per_node, job.num_ranks)
        cpus = ranks * (job.loader_cpus + 1)
        started_s = max(0.0, min(now_s, trace.ready_s) - trace.begin_s)
        cpu_s = 0.9 * started_s + read("main_cpu_s", now_s)
        has_workers = job.num_workers > 0 and now_s > trace.ready_s
        return HostPart(
            sampled_s=max(0.0, now_s - trace.begin_s),
            process=ProcessPart(
                cpu_user_s=0.93 * cpu_s,
                cpu_system_s=0.07 * cpu_s,
                cpus_busy=rate("main_cpu_s"),
                memory_bytes=_PROCESS_BYTES,
                num_threads=40,
                usable_cpus=float(cpus),
            ),
            loader=LoaderPart(
                num_alive=job.num_workers,
                cpu_s=read("worker_cpu_s", now_s),
                cpus_busy=rate("worker_cpu_s"),
                memory_bytes=_WORKER_BYTES * job.num_workers,
            )
            if has_workers
            else None,
            reads=self._reads(now_s, rate("read_bytes")) if job.counts_reads else None,
            node=self._node(now_s) if trace.rank % job.ranks_per_node == 0 else None,
        )

    def _reads(self, now_s: float, bytes_per_s: float) -> ReadsPart:
        read = self._meters.read
        num, read_s = round(read("num_reads", now_s)), read("read_s", now_s)
        buckets = [0] * (len(READ_BOUNDS_S) + 1)
        if num:
            buckets[bisect_left(READ_BOUNDS_S, read_s / num)] = num
        return ReadsPart(
            num_reads=num,
            num_bytes=round(read("read_bytes", now_s)),
            num_opens=num // 2,
            open_s=0.3 * read_s,
            read_s=0.7 * read_s,
            max_s=read("max_read_s", now_s),
            bounds_s=list(READ_BOUNDS_S),
            buckets=buckets,
            bytes_per_s=bytes_per_s,
        )

    def _node(self, now_s: float) -> NodePart:
        job, rank = self.job, self._meters.trace.rank
        ranks = min(job.ranks_per_node, job.num_ranks)
        cpus = ranks * (job.loader_cpus + 1)
        sent = 0 if job.num_nodes == 1 else round(self._meters.read("reduced_bytes", now_s))
        return NodePart(
            id=f"boot-{rank // job.ranks_per_node}",
            num_cpus=cpus,
            memory_bytes=_NODE_BYTES,
            memory_used_bytes=_NODE_BYTES // 4,
            memory_available_bytes=3 * _NODE_BYTES // 4,
            network_receive_bytes=sent if not job.is_cuda else sent // 1000,
            network_transmit_bytes=sent if not job.is_cuda else sent // 1000,
            infiniband_receive_bytes=sent if job.is_cuda else None,
            infiniband_transmit_bytes=sent if job.is_cuda else None,
        )

    def _look(self, now_s: float, phase_ns: list[int]) -> dict[str, int]:
        """Count looks at the training thread, which come at random moments."""
        read, looks = self._meters.read, self._looks
        waited = self._since("waiting", phase_ns[Phase.DATA_WAIT] / NS_PER_S)
        for field, meter in _INLINE.items():
            num = self._draw(min(waited, self._since(field, read(meter, now_s))))
            looks[field] += num
            looks["num_waiting"] += num
            waited -= num / _LOOKS_PER_S
        num = self._draw(waited)
        looks["in_dataset"] += num
        looks["num_waiting"] += num
        iterating_s = sum(phase_ns[phase] for phase in _ITERATING) / NS_PER_S
        num = self._draw(self._since("iterating", iterating_s))
        in_sync = min(num, self._draw(self._since("sync", read("sync_wait_s", now_s))))
        looks["num_iterating"] += num
        looks["in_sync"] += in_sync
        return looks

    def _since(self, name: str, total_s: float) -> float:
        seconds = max(0.0, total_s - self._looked[name])
        self._looked[name] = max(total_s, self._looked[name])
        return seconds

    def _draw(self, seconds: float) -> int:
        return int(self._rng.poisson(_LOOKS_PER_S * seconds)) if seconds > 0 else 0
