"""Writes the records that costlens would have written of a simulated rank, one a window.

The spans of the host go through costlens' own booking (``core/window.py``, the device ledger, the
snapshot builder), so that a record here is what a real run's is. GPU and host are sampled every 2 s
with the noise that such samples have.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.diagnosis.gpu_facts import GpuFacts
from benchmarks.diagnosis.host_facts import HostFacts
from benchmarks.diagnosis.job import Job
from benchmarks.diagnosis.meters import Meters
from benchmarks.diagnosis.trace import Cut, Trace
from costlens.account.throughput import compute_rates
from costlens.core.attempt_state import AttemptState
from costlens.core.checkpoint_records import CheckpointsPart
from costlens.core.clock import NS_PER_S, Anchor
from costlens.core.job_records import JobPart
from costlens.core.phases import NUM_PHASES, Phase
from costlens.core.precision_records import PrecisionPart
from costlens.core.price_records import PricePart
from costlens.core.quality import QualityBook
from costlens.core.recorder import Counters, Row
from costlens.core.records import Outcome, RankPart, RankRecord, RunPart
from costlens.core.snapshot_builder import SnapshotBuilder
from costlens.core.spread import first_window_ns
from costlens.core.telemetry_records import TelemetryPart
from costlens.core.timeline import TimelineReading
from costlens.core.window import Totals

__all__ = ["PRICE_PER_HOUR", "WINDOW_S", "write_records"]

PRICE_PER_HOUR = 2.5
"""Money for a device, or for a rank without one."""

WINDOW_S = 10.0
_WALL_NS = 1_790_000_000 * NS_PER_S
_MIN_SCALE = 2.0**16


class _Clockwork:
    """Stands for the timeline and the recorder of a rank: what the training thread has told."""

    def __init__(self, start_ns: int) -> None:
        self.start_ns = start_ns
        self.counters = Counters()
        self.counters.watch_steps()
        self.first_cut_ns: int | None = None
        self.phase_ns = [0] * NUM_PHASES
        self.phase = int(Phase.STARTUP)
        self.since_ns = start_ns

    def read(self) -> TimelineReading:
        """Return where it stands."""
        return TimelineReading(tuple(self.phase_ns), self.phase, self.since_ns)

    def move(self, phase: int, end_ns: int) -> None:
        """Spend the time up to ``end_ns`` in a phase."""
        self.phase_ns[phase] += end_ns - self.since_ns
        self.phase, self.since_ns = phase, end_ns


class RankRecorder:
    """Writes the records of one rank.

    Args:
        job: The job.
        trace: What the rank did.
    """

    def __init__(self, job: Job, trace: Trace) -> None:
        self.job, self.trace = job, trace
        rng = np.random.default_rng((job.seed, trace.rank, 1))
        meters = Meters(trace)
        self._gpu = GpuFacts(job, meters, rng) if job.is_cuda else None
        self._host = HostFacts(job, meters, rng)
        self._clockwork = _Clockwork(_ns(trace.begin_s))
        self._totals = Totals(has_device=job.is_cuda)
        self._now_s = trace.begin_s
        self._held: list[tuple[int, Cut]] = []
        self._state = _make_state(job, trace)
        self._builder = SnapshotBuilder(
            self._state,
            self._clockwork,  # type: ignore[arg-type]
            self._clockwork,  # type: ignore[arg-type]
            self._totals,
            QualityBook(),
            rates=compute_rates,
            telemetry=lambda: TelemetryPart(num_windows=self._builder.num_windows),
            probed=self._probe,
        )

    def write(self) -> Iterator[RankRecord]:
        """Yield the record of every window, and the last one."""
        trace, cuts = self.trace, iter(enumerate(self.trace.cuts))
        number, cut = next(cuts)
        run_id, world_size = self._state.run.id, self.job.num_ranks
        first_ns = first_window_ns(run_id, trace.rank, world_size, _ns(WINDOW_S))
        next_s = trace.begin_s + first_ns / NS_PER_S
        for index, (phase, end_s) in enumerate(trace.spans):
            while cut is not None and cut.at == index:
                self._take(number, cut)
                number, cut = next(cuts, (0, None))  # type: ignore[assignment]
            if phase == Phase.SHUTDOWN:
                break
            if cut is not None and number == 0:  # the first iteration belongs to start-up
                phase = int(Phase.STARTUP)  # noqa: PLW2901 - what it is booked as
            while next_s < end_s:
                self._clockwork.phase = phase
                yield self._close(next_s)
                next_s += WINDOW_S
            self._clockwork.move(phase, _ns(end_s))
        self._clockwork.move(int(Phase.SHUTDOWN), _ns(trace.end_s))
        self._state.outcome = Outcome.COMPLETED
        self._state.end_ns = _ns(trace.end_s)
        yield self._close(trace.end_s, is_last=True)

    def _close(self, now_s: float, *, is_last: bool = False) -> RankRecord:
        self._now_s = now_s
        known = [(n, c) for n, c in self._held if c.known_s <= now_s]
        self._held = [(n, c) for n, c in self._held if c.known_s > now_s]
        if self.job.is_cuda:
            self._totals.resolve((n, _ns(c.gap_s)) for n, c in known)
        self._describe(now_s)
        return self._builder.build(_ns(now_s), is_last=is_last).record

    def _take(self, number: int, cut: Cut) -> None:
        clockwork, counters = self._clockwork, self._clockwork.counters
        counters.iterations = counters.micro_batches = number + 1
        counters.optimizer_steps, counters.skipped_steps = cut.steps, cut.skipped
        counters.samples, counters.slots, counters.tokens = cut.samples, cut.slots, cut.tokens
        if number == 0:
            clockwork.first_cut_ns = clockwork.since_ns
        if cut.begins_pass:
            self._totals.pass_waits.begin(number)
        self._totals.add(
            Row(
                number=number,
                start_ns=_ns(cut.start_s),
                end_ns=_ns(cut.end_s),
                micro_batches=number + 1,
                optimizer_steps=cut.steps,
                skipped_steps=cut.skipped,
                samples=cut.samples,
                slots=cut.slots,
                tokens=cut.tokens,
                loss_tokens=-1,
                context=-1,
                is_startup=int(number == 0),
                phase_ns=tuple(clockwork.phase_ns),
            )
        )
        self._held.append((number, cut))

    def _describe(self, now_s: float) -> None:
        state, job = self._state, self.job
        saves_s = [end_s for end_s in self.trace.saves if end_s <= now_s]
        state.num_saves = len(saves_s)
        state.num_evaluations = sum(end_s <= now_s for end_s in self.trace.validations)
        if job.saves_itself:
            steps = self._clockwork.counters.optimizer_steps
            state.checkpoints = CheckpointsPart(
                url="s3://runs/checkpoints",
                num_saved=len(saves_s),
                num_bytes=2 * 10**9,
                stall_s=job.save_s * len(saves_s),
                write_s=4 * job.save_s * len(saves_s),
                last_step=steps if saves_s else None,
            )
        steps, skipped = (
            self._clockwork.counters.optimizer_steps,
            self._clockwork.counters.skipped_steps,
        )
        is_scaled = job.precision == "fp16"
        share = skipped / max(1, steps + skipped)
        state.precision = PrecisionPart(
            requested="off",
            effective=job.precision,
            reason="the Trainer has its own",
            skipped_steps=skipped if is_scaled else None,
            skipped_s=share * self._totals.histogram.sum_ns / NS_PER_S if is_scaled else None,
            loss_scale=_MIN_SCALE if is_scaled else None,
        )

    def _probe(self) -> dict[str, object]:
        phase_ns = list(self._clockwork.read().until(_ns(self._now_s)))
        fields = self._host.take(self._now_s, phase_ns, self._totals.pass_waits.wait_ns)
        if self._gpu is not None:
            fields |= self._gpu.take(self._now_s)
        return fields | {"price": _make_price(self.job)}


def write_records(job: Job, trace: Trace) -> list[RankRecord]:
    """Return the records of a rank, one a window and the last."""
    return list(RankRecorder(job, trace).write())


def _ns(seconds: float) -> int:
    return round(seconds * NS_PER_S)


def _make_state(job: Job, trace: Trace) -> AttemptState:
    node = trace.rank // job.ranks_per_node
    local_rank = trace.rank % job.ranks_per_node
    begin_ns, ready_ns = _ns(trace.begin_s), _ns(trace.ready_s)
    start_time = (_WALL_NS + begin_ns) / NS_PER_S
    return AttemptState(
        run=RunPart(
            id=f"simulated-{job.seed}",
            name="simulated",
            framework="lightning 2.6.6" if job.is_lightning else "torch 2.14",
            costlens_version="0.1.0",
        ),
        rank=RankPart(
            rank=trace.rank,
            local_rank=local_rank,
            node_rank=node,
            world_size=job.num_ranks,
            local_world_size=min(job.ranks_per_node, job.num_ranks),
            host_name=f"node-{node}",
            pid=1000 + trace.rank,
            device=job.device,
            num_gpus=int(job.is_cuda),
            accelerator=job.accelerator if job.is_cuda else None,
            unowned_gpus=job.unowned_gpus if job.is_cuda and local_rank == 0 else None,
        ),
        anchor=Anchor(wall_ns=_WALL_NS, mono_ns=0),
        start_ns=begin_ns,
        launch_key="launch",
        process_start_ns=begin_ns,
        watch_start_ns=begin_ns + (ready_ns - begin_ns) // 2,
        first_fetch_ns=ready_ns,
        import_ns=begin_ns + (ready_ns - begin_ns) // 3,
        gang_wait_ns=None if trace.gang_wait_s is None else _ns(trace.gang_wait_s),
        start_step=0,
        stage="train",
        job=JobPart(
            scheduler="slurm",
            job_id=str(job.seed),
            submit_time=start_time - job.queue_s - 5,
            eligible_time=start_time - job.queue_s,
            start_time=start_time,
            times_from="environment",
            is_allocation_owner=True,
            capacity_type=job.capacity_type,
            num_gpus=min(job.ranks_per_node, job.num_ranks) + job.unowned_gpus
            if job.is_cuda
            else None,
        ),
    )


def _make_price(job: Job) -> PricePart:
    return PricePart.model_validate(
        {
            "amount": str(PRICE_PER_HOUR),
            "unit": "gpu" if job.is_cuda else "node",
            "share": "1",
            "currency": "USD",
            "source": "COSTLENS_GPU_HOUR_PRICE",
            "capacity_type": job.capacity_type,
        }
    )
