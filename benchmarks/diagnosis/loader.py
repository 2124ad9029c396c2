"""The data loader of a rank as torch's works: who prepares which batch, and when it is there.

Batches are given to workers in turn, ``prefetch_factor`` each; the next index goes out when a batch
is taken. Workers share the CPUs and the storage of their rank.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.diagnosis.job import Job

__all__ = ["Loader", "LoaderCounts"]

_HAND_OVER_S = 0.0003
_FORK_S = 0.01
_READS_A_SAMPLE = 2
_NUM_JITTERS = 4096


@dataclass(slots=True)
class LoaderCounts:
    """What loading has taken so far, in all processes of the rank.

    Args:
        worker_cpu_s: CPU time of the workers.
        main_cpu_s: CPU time of the main process.
        num_reads: Reads.
        read_bytes: Bytes of them.
        read_s: Time in them.
        max_read_s: The longest.
        num_batches: Batches that were prepared.
        load_s: Time in which workers, or the main process, were preparing batches.
        collate_s: Part of that in making batches of samples.
        num_epochs: Passes that have begun.
        first_wait_s: Waits for the first batch of each pass but the first.
        start_wait_s: Part of that until the workers could begin.
        inline_read_s: Time in reads of the main process.
        inline_dataset_s: Time of the main process in preparing samples.
        inline_collate_s: Time of the main process in making batches of them.
        queue_wait_s: Time of the main process in waiting for workers.
    """

    worker_cpu_s: float = 0.0
    main_cpu_s: float = 0.0
    num_reads: int = 0
    read_bytes: float = 0.0
    read_s: float = 0.0
    max_read_s: float = 0.0
    num_batches: int = 0
    load_s: float = 0.0
    collate_s: float = 0.0
    num_epochs: int = 0
    first_wait_s: float = 0.0
    start_wait_s: float = 0.0
    inline_read_s: float = 0.0
    inline_dataset_s: float = 0.0
    inline_collate_s: float = 0.0
    queue_wait_s: float = 0.0


class Loader:
    """Prepares the batches of one rank.

    Args:
        job: The job.
        rng: For the spread of every batch.
    """

    def __init__(self, job: Job, rng: np.random.Generator) -> None:
        self.job = job
        self.counts = LoaderCounts()
        self._jitter = _endless(rng)
        self._pipe_free_s = self._service_free_s = 0.0
        self._cpu_free_s = [0.0] * max(1, job.loader_cpus)
        self._worker_free_s = [0.0] * job.num_workers
        self._ready_s: list[float] = []
        self._num_taken = 0
        self._is_running = False

    @property
    def is_epoch_over(self) -> bool:
        """Return whether the next batch begins a pass."""
        return not self._is_running or self._num_taken >= self.job.epoch_batches

    def take(self, now_s: float) -> float:
        """Return when the main process has its next batch, which it asks for at ``now_s``."""
        counts = self.counts
        is_first = self.is_epoch_over
        begin_s = now_s
        if is_first:
            now_s = self._begin_pass(now_s)
        if self.job.num_workers == 0:
            got_s = self._load(now_s, None)
        else:
            got_s = max(now_s, self._ready_s[self._num_taken]) + _HAND_OVER_S
            counts.queue_wait_s += got_s - now_s
            self._dispatch(got_s)
        self._num_taken += 1
        if is_first and counts.num_epochs > 1:
            counts.first_wait_s += got_s - begin_s
        return got_s

    def _begin_pass(self, now_s: float) -> float:
        job, counts = self.job, self.counts
        was_running, self._is_running = self._is_running, True
        counts.num_epochs += 1
        self._num_taken = 0
        self._ready_s = []
        now_s += job.epoch_setup_s
        counts.main_cpu_s += job.epoch_setup_s
        if job.num_workers and not (was_running and job.is_persistent):
            now_s += _FORK_S * job.num_workers
            start_s = job.worker_start_s * next(self._jitter)
            self._worker_free_s = [now_s + start_s] * job.num_workers
            counts.worker_cpu_s += 0.8 * start_s * job.num_workers
            if was_running:
                counts.start_wait_s += start_s
        for _ in range(min(job.epoch_batches, job.num_workers * job.prefetch_factor)):
            self._dispatch(now_s)
        return now_s

    def _dispatch(self, now_s: float) -> None:
        index = len(self._ready_s)
        if index < self.job.epoch_batches:
            worker = index % self.job.num_workers
            begin_s = max(now_s, self._worker_free_s[worker])
            end_s = self._load(begin_s, worker)
            self._worker_free_s[worker] = end_s
            self._ready_s.append(end_s)

    def _load(self, begin_s: float, worker: int | None) -> float:
        """Return when a batch is ready that is begun at ``begin_s``; by the main one if None."""
        job, counts = self.job, self.counts
        size = job.batch_size * next(self._jitter)
        read_s = self._read(begin_s, size)
        cpu_s = size * job.sample_cpu_s + job.collate_s
        ask_s = begin_s + read_s
        if job.sample_wait_s:
            ask_s = max(ask_s, self._service_free_s) + size * job.sample_wait_s
            self._service_free_s = ask_s
        if worker is None:
            counts.main_cpu_s += cpu_s
            counts.inline_read_s += read_s
            counts.inline_dataset_s += ask_s - begin_s - read_s + cpu_s - job.collate_s
            counts.inline_collate_s += job.collate_s
            end_s = ask_s + cpu_s
        else:
            counts.worker_cpu_s += cpu_s
            end_s = max(ask_s, self._cpu_free_s[0]) + cpu_s
            heapq.heapreplace(self._cpu_free_s, end_s)
        counts.num_batches += 1
        counts.load_s += end_s - begin_s
        counts.collate_s += job.collate_s
        return end_s

    def _read(self, begin_s: float, size: float) -> float:
        job, counts = self.job, self.counts
        num_bytes = size * job.sample_bytes
        latency_s = size * job.sample_read_s * next(self._jitter)
        through_s = max(begin_s, self._pipe_free_s) + num_bytes / job.storage_bytes_per_s
        self._pipe_free_s = through_s
        read_s = through_s - begin_s + latency_s
        num_reads = _READS_A_SAMPLE * job.batch_size
        counts.num_reads += num_reads
        counts.read_bytes += num_bytes
        counts.read_s += read_s
        counts.max_read_s = max(counts.max_read_s, 3 * read_s / num_reads)
        return read_s


def _endless(rng: np.random.Generator) -> Iterator[float]:
    while True:
        yield from rng.lognormal(-0.005, 0.1, _NUM_JITTERS).tolist()
