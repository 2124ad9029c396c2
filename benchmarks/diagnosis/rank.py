"""One rank at work: its host thread, and the queue of its device that runs behind.

On a device the host only enqueues: it waits where it must (a copy from pageable memory, a sync
point, a full queue), and the device waits where nothing is enqueued. On the CPU host and device are
one.
"""

from __future__ import annotations

import numpy as np

from benchmarks.diagnosis.job import Job
from benchmarks.diagnosis.loader import Loader
from benchmarks.diagnosis.trace import Cut, Trace
from costlens.core.phases import Phase

__all__ = ["Rank"]

_PINNED_BYTES_PER_S = 25e9
_PAGEABLE_BYTES_PER_S = 4e9
_FIRST_KERNEL_S = 0.00001
_GRADIENT_BYTES_PER_S = 2e10
_NUM_JITTERS = 4096
_DDP_TIMES_EVERY = 100
_TENSOR_SHARE = {"bf16": 0.55, "fp16": 0.55, "fp32": 0.0}


class Rank:
    """Simulates one rank; the engine lets all of them meet in the all-reduce.

    Args:
        job: The job.
        number: The rank.
    """

    def __init__(self, job: Job, number: int) -> None:
        rng = np.random.default_rng((job.seed, number))
        self.job = job
        self.trace = Trace(number)
        self.loader = Loader(job, rng)
        self.host_s = 0.0
        self.device_s = 0.0
        self.clock = dict(job.clocks).get(number, 1.0)
        spread = rng.normal(1.0, 0.006)
        self._speed = self.clock * min(1.02, max(0.98, spread))
        self._jitters = rng.lognormal(0.0, 0.015, _NUM_JITTERS).tolist()
        self._lengths = rng.lognormal(
            -(job.length_spread**2) / 2, max(1e-9, job.length_spread), _NUM_JITTERS
        ).tolist()
        # Ranks run the same model, and share their gradients: what befalls one befalls all.
        self._luck = np.random.default_rng((job.seed, 2_000_000)).random(_NUM_JITTERS).tolist()
        self._iteration = 0
        self._begins_pass = False
        self._start_s = self._gap_s = self._known_s = 0.0
        self._work_s = self._slots = 0.0
        self._ahead_s = job.ahead_s
        self._mean_slots = job.slots
        self._batch_work_s = job.slots * job.work_s * job.precision_factor
        own_s = 0.7 * (job.floor_s + job.optimizer_s)
        full = self._batch_work_s / (self._batch_work_s + own_s)
        self._sm_share = job.sm_active * full
        self._tensor_share = _TENSOR_SHARE[job.precision] * full
        self._busy_s = self._sm_s = self._tensor_s = self._spin_s = 0.0
        self._copied = self._reduced = self._host_cpu_s = 0.0
        self._num_retries = self._num_compiles = 0
        self._compile_s = self._sync_wait_s = self._stopped_s = 0.0
        self._steps = self._skipped = self._samples = 0
        self._all_slots = self._all_tokens = 0

    def book(self, phase: Phase, end_s: float) -> None:
        """Let the host be in a phase until ``end_s``."""
        if end_s > self.host_s:
            self.trace.spans.append((int(phase), end_s))
            self.host_s = end_s

    def start(self, begin_s: float, end_s: float, gang_wait_s: float | None) -> None:
        """Start up from the begin of the process until ``end_s``."""
        self.trace.begin_s = self.host_s = begin_s
        self.trace.gang_wait_s = gang_wait_s
        self.book(Phase.STARTUP, end_s)
        self.trace.ready_s = self.device_s = self._start_s = end_s
        self.measure()

    # An iteration, in two parts around the all-reduce.

    def run_to_reduce(self, stop_s: float) -> float:
        """Fetch, go forward and backward; return when this rank comes to the all-reduce.

        Args:
            stop_s: For how long the process is stopped in it.
        """
        job, turn = self.job, self._iteration % _NUM_JITTERS
        self._start_s = self.host_s
        self._stopped_s += stop_s
        self._fetch(stop_s if job.stops_in_wait else 0.0)
        self._copy()
        length = self._lengths[turn]
        self._slots = self._mean_slots * length
        slow = 1.3 if self._iteration < job.cold_iterations else 1.0
        scale = self._jitters[turn] * slow / self._speed
        self._work_s = self._batch_work_s * length * scale
        floor_s = job.floor_s * scale
        if stop_s and not job.stops_in_wait:
            self._pass(Phase.FORWARD, stop_s)
        if self._iteration == 0:
            self._pass(Phase.FORWARD, job.first_iteration_s)
        if job.compile_every and self._iteration and self._iteration % job.compile_every == 0:
            self._num_compiles += 1
            self._compile_s += job.compile_s
            self._pass(Phase.FORWARD, job.compile_s)
        if self._luck[turn] < job.retry_share:
            self._num_retries += 1
            self._wait_for_device(Phase.FORWARD)
            self._pass(Phase.FORWARD, job.retry_s)
        self._launch(Phase.FORWARD, 0.3, (self._work_s + floor_s) / 3)
        self._launch(Phase.BACKWARD, 0.6, (self._work_s + floor_s) * 2 / 3)
        return self.device_s if job.is_cuda else self.host_s

    def finish(self, reduced_s: float) -> None:
        """Update and do what follows a step, once the all-reduce is over at ``reduced_s``."""
        job, turn = self.job, self._iteration % _NUM_JITTERS
        if job.num_ranks > 1:
            self._reduce(reduced_s)
        if job.precision == "fp16" and job.is_cuda:
            self._wait_for_device(Phase.OPTIMIZER)
        self._launch(Phase.OPTIMIZER, 0.1, job.optimizer_s / self._speed)
        self._count(is_skipped=self._luck[-1 - turn] < job.skip_share)
        if self._iteration % job.log_every == 0:
            self._wait_for_device(Phase.LOGGING)
        jitter = self._jitters[-1 - turn]
        self._work(Phase.CALLBACKS, job.callbacks_s * jitter)
        self._work(Phase.LOGGING, job.logging_s * jitter)
        self._work(Phase.OTHER, job.host_step_s * jitter)
        self._cut()

    def stand_still(self, phase: Phase, seconds: float, busy: float) -> None:
        """Drain the device and spend time in a save or a validation.

        Args:
            phase: What it is.
            seconds: For how long.
            busy: Share of that in which the device computes.
        """
        self.book(phase, self.device_s if self.job.is_cuda else self.host_s)
        self._add_busy(busy * seconds)
        self.book(phase, self.host_s + seconds)
        self.device_s = max(self.device_s, self.host_s)
        self.measure()

    def measure(self) -> None:
        """Read all meters now."""
        counts = self.loader.counts
        self.trace.meter_times_s.append(self.host_s)
        self.trace.device_times_s.append(max(self.device_s, self.trace.ready_s))
        self.trace.meters.append(
            (
                *(self._busy_s, self._sm_s, self._tensor_s, 0.6 * self._sm_s, self._spin_s),
                *(0.0 if self.job.throttle_reason is None else self._throttled_s(),),
                *(counts.worker_cpu_s, self._host_cpu_s + counts.main_cpu_s),
                *(counts.num_reads, counts.read_bytes, counts.read_s, counts.max_read_s),
                *(counts.num_batches, counts.load_s, counts.collate_s, counts.num_epochs),
                *(counts.first_wait_s, counts.start_wait_s, self._copied, self._reduced),
                *(self._num_retries, self._num_compiles, self._compile_s, self._sync_wait_s),
                *(counts.inline_read_s, counts.inline_dataset_s, counts.inline_collate_s),
                *(counts.queue_wait_s, self._stopped_s),
            )
        )

    def _throttled_s(self) -> float:
        return self.host_s - self.trace.ready_s if self.clock < 1 else 0.0

    # Pieces of an iteration.

    def _fetch(self, stop_s: float) -> None:
        asked_s = self.host_s
        self._begins_pass = self.loader.is_epoch_over
        got_s = self.loader.take(asked_s)
        self.book(Phase.DATA_WAIT, max(got_s, asked_s + stop_s))
        # Two events on the stream: behind all that was enqueued, and when the batch is there.
        self._gap_s = max(0.0, self.host_s - max(asked_s, self.device_s))
        self._known_s = max(self.host_s, self.device_s)

    def _copy(self) -> None:
        job = self.job
        if not job.is_cuda:
            return
        self._copied += job.copy_bytes
        if job.pin_memory:
            begin_s = max(self.device_s, self.host_s)
            self.device_s = begin_s + job.copy_bytes / _PINNED_BYTES_PER_S
        else:  # the host goes with the copy through a pinned buffer, behind what is enqueued
            end_s = max(self.host_s, self.device_s) + job.copy_bytes / _PAGEABLE_BYTES_PER_S
            self.book(Phase.TRANSFER, end_s)
            self.device_s = end_s

    def _launch(self, phase: Phase, share: float, device_s: float) -> None:
        """Enqueue a share of the iteration's kernels, which take the device ``device_s``."""
        job = self.job
        if not job.is_cuda:
            self._host_cpu_s += device_s
            self._add_busy(device_s)
            self.book(phase, self.host_s + device_s)
            return
        launched_s = self.host_s + job.launch_s * share
        begin_s = max(self.device_s, self.host_s + _FIRST_KERNEL_S)
        self.device_s = max(begin_s + device_s, launched_s)
        self._add_busy(device_s)
        self._host_cpu_s += job.launch_s * share
        num_syncs = round(job.num_syncs * share)
        if num_syncs:
            self.device_s = max(launched_s, self.device_s) + num_syncs * job.sync_s
            self._host_cpu_s += self.device_s - launched_s
            self._sync_wait_s += self.device_s - launched_s
            launched_s = self.device_s
        # The queue is full: the driver lets the host wait in the launch.
        self.book(phase, max(launched_s, self.device_s - self._ahead_s))

    def _reduce(self, reduced_s: float) -> None:
        self._reduced += self.job.comm_s * _GRADIENT_BYTES_PER_S
        if self.job.is_ddp and self._iteration % _DDP_TIMES_EVERY == 0 and self._iteration:
            computed_s = self.device_s if self.job.is_cuda else self.host_s
            self.trace.reduces.append((reduced_s, max(0.0, reduced_s - computed_s)))
        if self.job.is_cuda:
            spin_s = max(0.0, reduced_s - self.device_s)
            self._spin_s += spin_s
            self._busy_s += spin_s
            self._sm_s += 0.08 * spin_s
            self.device_s = max(self.device_s, reduced_s)
        else:
            self.book(Phase.BACKWARD, reduced_s)

    def _wait_for_device(self, phase: Phase) -> None:
        if self.job.is_cuda and self.device_s > self.host_s:
            self._sync_wait_s += self.device_s - self.host_s
            self._host_cpu_s += self.device_s - self.host_s
            self.book(phase, self.device_s)

    def _work(self, phase: Phase, seconds: float) -> None:
        self._host_cpu_s += seconds
        self.book(phase, self.host_s + seconds)

    def _pass(self, phase: Phase, seconds: float) -> None:
        self.book(phase, self.host_s + seconds)

    def _add_busy(self, seconds: float) -> None:
        """Count kernels; those that are there whatever the batch keep few units busy."""
        self._busy_s += seconds
        self._sm_s += self._sm_share * seconds
        self._tensor_s += self._tensor_share * seconds

    def _count(self, *, is_skipped: bool) -> None:
        job = self.job
        self._steps += not is_skipped
        self._skipped += is_skipped
        self._samples += job.batch_size
        self._all_slots += round(self._slots)
        self._all_tokens += round(self._slots * job.fill)

    def _cut(self) -> None:
        trace = self.trace
        trace.cuts.append(
            Cut(
                len(trace.spans),
                self._start_s,
                self.host_s,
                self._gap_s,
                self._known_s,
                self._steps,
                self._skipped,
                self._samples,
                self._all_slots,
                self._all_tokens,
                self._begins_pass,
            )
        )
        self._iteration += 1
        self.measure()
