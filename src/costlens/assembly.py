"""The pipeline side of a run, put together: when it is claimed, looked at, judged and exported.

``run.py`` owns the training thread's side and makes one :class:`Session`; everything here but the
constructor and ``open`` runs on the pipeline thread.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console

from costlens.account.throughput import compute_rates
from costlens.agreeing import let_ranks_agree, must_agree
from costlens.attempt import Parts
from costlens.claiming import Claim
from costlens.config import Config
from costlens.core.clock import NS_PER_S, Clock
from costlens.core.guard import faults
from costlens.core.log import RunContext
from costlens.core.pipeline import Pipeline
from costlens.core.shutdown import lengthen_shutdown
from costlens.core.snapshot import Exporter, Snapshot
from costlens.core.snapshot_builder import SnapshotBuilder
from costlens.core.spread import first_window_ns
from costlens.core.telemetry_records import TelemetryPart
from costlens.diagnosing import Findings
from costlens.export.console import render
from costlens.export.record import read_run
from costlens.exporting import Exports
from costlens.gang import Gang
from costlens.lookout import Lookout
from costlens.observe.last_words import witness_end
from costlens.observe.process import is_interactive
from costlens.protect.run_end import RunEnd
from costlens.spending import Spending
from costlens.storage.identity import Identity

__all__ = ["Session"]

_IDENTITY_PATIENCE_S = 60.0


class Session:
    """Runs the pipeline of a run from ``open`` to ``close``; may be opened again, for a second fit.

    Args:
        config: The settings.
        parts: What the training thread writes.
        clock: Monotonic nanoseconds.
        launch_key: What all ranks of the launch share.
        exporters: Replaces the exporters that the settings ask for.
    """

    def __init__(
        self,
        config: Config,
        parts: Parts,
        clock: Clock,
        launch_key: str,
        exporters: Sequence[Exporter] | None = None,
    ) -> None:
        self.config = config
        self.parts = parts
        self.snapshot: Snapshot | None = None
        self._clock = clock
        self._is_stuck = False
        self._cpu_before_ns = 0
        state = parts.state
        self._claim = claim = Claim(config, state, launch_key)
        self.context = _make_context(parts, claim.proposed_run_id)
        state.log = self.context.log
        self._exports = Exports(config, parts, clock, claim, self.context, exporters)
        self._lookout = Lookout(config, parts, clock, claim, self._counts)
        self._builder = SnapshotBuilder(
            state,
            parts.timeline,
            parts.recorder,
            parts.totals,
            parts.quality,
            rates=compute_rates,
            telemetry=self._telemetry,
            probed=self._lookout.contribute,
        )
        find_folder = claim.settled_folder
        self._gang = Gang(state, clock, config.window_s, find_folder, self._counts)
        if must_agree(config):
            let_ranks_agree(parts, clock, launch_key)
        self._spending = Spending(config, state, clock, find_folder, parts.boundaries)
        self._findings = Findings(state)
        self.end = _make_end(config, parts)

    @property
    def proposed_run_id(self) -> str:
        """Return the id that the run has unless the store says otherwise."""
        return self._claim.proposed_run_id

    @property
    def is_open(self) -> bool:
        """Return whether the pipeline thread runs."""
        return self.end.pipeline is not None

    def open(self) -> None:
        """Build the exporters and start the pipeline thread; calling thread, before the first step.

        Everything is imported and constructed here: the first export inside the loop once held a
        step up for 200 ms, and a fork while another thread imports leaves a lock behind.
        """
        self.context.open()
        self.parts.recorder.wake()
        self._claim.load()
        self._lookout.load()
        self._exports.open()
        faults.call("session.prepare", self._prepare)
        rank = self.parts.state.rank
        pipeline = Pipeline(
            self.parts.recorder,
            self.parts.totals,
            self._clock,
            self.config.window_ns,
            begin=self._begin,
            poll=self._poll,
            look=self._lookout.looks.look,
            close=self._close_window,
            first_window_ns=first_window_ns(
                self.proposed_run_id, rank.rank, rank.world_size, self.config.window_ns
            ),
            standstill=self._findings.standstill,
        )
        self._lookout.open()
        self.end.pipeline = pipeline
        pipeline.start()
        self.end.arm()

    def _prepare(self) -> None:
        self._exports.prepare(self._builder.build(self._clock(), opens=True))

    def wait_identity(self, timeout_s: float) -> Identity | None:
        """Return the identity, waiting up to ``timeout_s`` seconds for the store to settle it."""
        if self._claim.identity is None and self.end.pipeline is not None:
            self.end.pipeline.ready.wait(timeout_s)
        return self._claim.identity

    def require_identity(self) -> Identity:
        """Return the identity, waiting for the store as long as it takes to answer or refuse.

        Raises:
            StorageError: If the run folder cannot be reached.
        """
        identity = self.wait_identity(_IDENTITY_PATIENCE_S)
        if identity is None:
            raise self._claim.explain(_IDENTITY_PATIENCE_S)
        return identity

    def close(self) -> bool:
        """Write the last record and flush what time allows; return whether the pipeline ended."""
        pipeline = self.end.pipeline
        if pipeline is None:
            self.context.close()
            return True
        # A signal may arrive meanwhile: its handler waits for the same pipeline.
        is_done = pipeline.stop(self.end.end_timeout_s)
        self.end.pipeline = None
        self.end.disarm()
        self._cpu_before_ns += pipeline.cpu_ns
        self._is_stuck = not is_done
        if not is_done:
            self.context.log.warning(
                "costlens.close.timeout",
                message="the run folder or a back-end did not answer in time; the last record may"
                " be missing",
            )
            if self.snapshot is None:  # stuck before the first look, which consumes nothing
                self.snapshot = self._builder.build(self._clock(), opens=True)
        else:
            self.parts.recorder.rest()
        self.context.close()
        return is_done

    def print_summary(self) -> None:
        """Print the merged report on standard error; calling thread, reads the run folder.

        Not where the run folder has just kept the end waiting: it would wait again, without limit.
        """
        folder = self._claim.settled_folder()
        if folder is not None and not self._is_stuck:
            render(read_run(folder, time.time(), witness_end), Console(stderr=True))

    def silence(self) -> None:
        """Forget the pipeline: its thread did not survive the fork."""
        self.end.pipeline = None
        self._exports.silence()
        self.context.close()

    # Pipeline thread from here on.

    def _begin(self) -> None:
        faults.call("session.identity", self._settle)
        self._lookout.begin()
        self._start_exports()
        # Last: a scheduler that does not answer must not keep the first record waiting.
        self._lookout.look_at_allocation()

    def _settle(self) -> None:
        self._claim.settle()
        identity = self._claim.identity
        if identity is not None:
            self.context.fields.update(run_id=identity.run_id, attempt=identity.attempt)

    def _settle_late(self) -> None:
        self._settle()
        if self._claim.identity is not None:
            self._start_exports()

    def _start_exports(self) -> None:
        faults.call("session.gang", self._gang.look)
        self.snapshot = self._builder.build(self._clock(), opens=True)
        self._exports.start(self.snapshot)

    def _poll(self) -> None:
        self._lookout.poll()
        faults.call("protect.agreement", self._spending.poll)

    def _close_window(self, now_ns: int, is_last: bool) -> None:  # noqa: FBT001 - a stage's signature
        if self._claim.identity is None:
            faults.call("session.identity", self._settle_late)
        self._lookout.look_at_allocation(is_last=is_last)
        faults.call("session.gang", self._gang.look, is_last=is_last)
        if is_last:
            now_ns = self._end()
        else:
            self._lookout.look()
        alarms = self._lookout.alarms
        snapshot = self._builder.build(now_ns, is_last=is_last, alarms=tuple(alarms))
        alarms.clear()
        snapshot = faults.call("session.spending", self._spending.complete, snapshot) or snapshot
        snapshot = faults.call("diagnose.findings", self._findings.complete, snapshot) or snapshot
        if is_last:
            faults.call("protect.agreement", self._spending.close)
        self.snapshot = snapshot
        self._exports.export(snapshot)
        if is_last:
            self._lookout.stop()
            self._exports.finish()
            faults.call("session.amend", self._amend)

    def _end(self) -> int:
        """Take in what is still to come; return the monotonic end of the attempt."""
        self._lookout.settle()
        self._poll()
        now_ns = self._clock()
        self.parts.state.end_ns = now_ns
        self._lookout.look_back(now_ns)
        return now_ns

    def _amend(self) -> None:
        # The record was written before the flush, in case that is the last thing the process does.
        if self.snapshot is None:
            return
        # What the flush took is shutdown, and paid for.
        state, end_ns = self.parts.state, self._clock()
        record = lengthen_shutdown(
            self.snapshot.record,
            end_ns - (state.end_ns or end_ns),
            end_time=state.anchor.to_wall_ns(end_ns) / NS_PER_S,
            telemetry=self._telemetry(),
        )
        state.end_ns = end_ns
        self.snapshot = replace(self.snapshot, record=record)
        self._exports.amend(self.snapshot)

    def _counts(self) -> dict[str, int]:
        return self._builder.counts()

    def _telemetry(self) -> TelemetryPart:
        health = self._exports.gather_health()
        cpu_ns = self._cpu_before_ns + time.thread_time_ns()
        return TelemetryPart(
            faults=dict(faults.counts),
            rows_dropped=self.parts.recorder.num_dropped,
            spans_dropped=health.num_spans_dropped,
            quality_dropped=self.parts.quality.num_dropped,
            values_dropped=self.parts.values.num_dropped,
            record_failures=health.num_failures,
            overhead_s=cpu_ns / NS_PER_S + health.cpu_s,
            exports=health.signals,
            num_windows=self._builder.num_windows,
            num_segments=health.num_segments,
            iterations_unresolved=self.parts.totals.num_unresolved,
            detail=self.parts.state.detail,
            control_failures=self._lookout.num_control_failures,
        )


def _make_end(config: Config, parts: Parts) -> RunEnd:
    return RunEnd(
        parts.recorder,
        parts.state,
        config.preemption_signals,
        # The flush has its own deadline on the pipeline thread; the extra second is for the record
        # itself.
        end_timeout_s=config.flush_timeout_s + 1.0,
        is_interactive=is_interactive(),
    )


def _make_context(parts: Parts, run_id: str) -> RunContext:
    state, recorder, totals = parts.state, parts.recorder, parts.totals
    context = RunContext()
    context.fields.update(
        run_id=run_id,
        rank=state.rank.rank,
        host_name=state.rank.host_name,
        job_id=state.rank.job_id,
    )

    def step() -> int | None:
        if state.end_step is not None:
            return state.end_step
        late = totals.late_counts.get("optimizer_steps", 0)
        steps = recorder.counters.optimizer_steps
        return None if steps < 0 else (state.start_step or 0) + steps + late

    context.sources["step"] = step
    context.sources["iteration"] = lambda: recorder.counters.iterations
    return context
