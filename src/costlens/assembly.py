"""The pipeline side of a run, put together: identity, exporters and the close of a window.

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
from costlens.attempt import Parts, describe_claimant
from costlens.config import Config
from costlens.core.attempt_state import AttemptState
from costlens.core.clock import NS_PER_S, Clock
from costlens.core.guard import faults
from costlens.core.log import RunContext
from costlens.core.pipeline import Pipeline
from costlens.core.probe import ProbeSet
from costlens.core.quality import Observation
from costlens.core.records import Outcome
from costlens.core.shutdown import lengthen_shutdown
from costlens.core.snapshot import Exporter, Snapshot
from costlens.core.snapshot_builder import SnapshotBuilder
from costlens.core.spread import first_window_ns
from costlens.core.telemetry_records import TelemetryPart
from costlens.core.trouble_records import LastWordsPart
from costlens.diagnosing import Findings
from costlens.errors import StorageError
from costlens.export.console import render
from costlens.export.health import gather_health
from costlens.export.otel_setup import Telemetry
from costlens.export.record import RecordExporter, read_run
from costlens.gang import Gang
from costlens.observe.allocation import AllocationWatch
from costlens.observe.last_words import gather_last_words, witness_end
from costlens.observe.liveness import Liveness
from costlens.observe.looks import Looks
from costlens.observe.oom import find_oom, recount_oom
from costlens.observe.precision_watch import LOSS_SCALE, PrecisionWatch
from costlens.observe.process import is_interactive
from costlens.observe.tuning import Tuning
from costlens.probes import make_probes
from costlens.protect.run_end import RunEnd
from costlens.spending import Spending
from costlens.storage.identity import Identity, propose_run_id, settle_identity
from costlens.storage.run_folder import RunFolder
from costlens.storage.store import Store

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
        self.identity: Identity | None = None
        self.exporters: list[Exporter] = []
        self.snapshot: Snapshot | None = None
        self._clock = clock
        self._launch_key = launch_key
        self._given = exporters
        self._alarms: list[Observation] = []
        self._refusal: StorageError | None = None
        self._is_stuck = False
        self._cpu_before_ns = 0
        self._store = Store(config.run_dir)
        url = config.checkpoint_url
        # An id that was given goes before what stands at the checkpoints, a scheduler's does not.
        self._checkpoint_store = Store(url) if url and not config.run_id else None
        self._telemetry_of_run: Telemetry | None = None
        rank, run = parts.state.rank, parts.state.run
        self.proposed_run_id = propose_run_id(
            run_id=config.run_id,
            job_id=_identify_job(parts.state),
            name=run.name,
            launch_key=launch_key,
            shared=rank.world_size > 1,
            wall_ns=parts.state.anchor.wall_ns,
        )
        parts.state.run = run.model_copy(update={"id": self.proposed_run_id})
        self.context = self._make_context()
        parts.state.log = self.context.log
        self._record = RecordExporter(self._find_folder, clock, self.context.log)
        self._looks = Looks(parts.timeline, lambda: parts.host.loader.collate)
        self._probes = ProbeSet(
            make_probes(config, parts.state, parts.host, self._looks, self._settled_folder)
        )
        self._builder = SnapshotBuilder(
            parts.state,
            parts.timeline,
            parts.recorder,
            parts.totals,
            parts.quality,
            rates=compute_rates,
            telemetry=self._telemetry,
            probed=self._probes.contribute,
        )
        self._gang = Gang(
            parts.state,
            clock,
            config.window_s,
            self._settled_folder,
            self._builder.counts,
        )
        if must_agree(config):
            let_ranks_agree(parts, clock, launch_key)
        self._spending = Spending(
            config,
            parts.state,
            clock,
            self._settled_folder,
            parts.boundaries,
        )
        self._findings = Findings(parts.state)
        self._allocation = AllocationWatch(parts.state, self._store, config.job_times)
        self._liveness = Liveness(parts.recorder, parts.totals, parts.state, clock)
        self._tuning = Tuning(parts.state, parts.totals)
        self._precision = PrecisionWatch(
            config.precision,
            parts.state,
            self._builder.counts,
            lambda: parts.totals.histogram.sum_ns,
        )
        # The flush has its own deadline on the pipeline thread; the extra second is for the record
        # itself.
        self._end_timeout_s = config.flush_timeout_s + 1.0
        self.end = RunEnd(
            parts.recorder,
            parts.state,
            config.preemption_signals,
            end_timeout_s=self._end_timeout_s,
            is_interactive=is_interactive(),
        )

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
        faults.call("session.load", self._store.load)
        if self._checkpoint_store is not None:
            faults.call("session.load", self._checkpoint_store.load)
        self._probes.load()
        self.exporters = self._make_exporters() if self._given is None else list(self._given)
        faults.call("session.prepare", self._prepare)
        rank = self.parts.state.rank
        pipeline = Pipeline(
            self.parts.recorder,
            self.parts.totals,
            self._clock,
            self.config.window_ns,
            begin=self._begin,
            poll=self._poll,
            look=self._looks.look,
            close=self._close_window,
            first_window_ns=first_window_ns(
                self.proposed_run_id, rank.rank, rank.world_size, self.config.window_ns
            ),
            standstill=self._findings.standstill,
        )
        self._liveness.begin()
        self.end.pipeline = pipeline
        pipeline.start()
        self.end.arm()

    def _prepare(self) -> None:
        self._record.prepare(self._builder.build(self._clock(), opens=True))

    def wait_identity(self, timeout_s: float) -> Identity | None:
        """Return the identity, waiting up to ``timeout_s`` seconds for the store to settle it."""
        if self.identity is None and self.end.pipeline is not None:
            self.end.pipeline.ready.wait(timeout_s)
        return self.identity

    def require_identity(self) -> Identity:
        """Return the identity, waiting for the store as long as it takes to answer or refuse.

        Raises:
            StorageError: If the run folder cannot be reached.
        """
        identity = self.wait_identity(_IDENTITY_PATIENCE_S)
        if identity is not None:
            return identity
        raise self._refusal or StorageError(
            f"{self._store.shown_url} did not answer within {_IDENTITY_PATIENCE_S:.0f} s, and a run"
            " without an identity cannot keep checkpoints; check that the place is reachable"
        )

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
        if self.identity is not None and not self._is_stuck:
            console = Console(stderr=True)
            render(read_run(self.identity.folder, time.time(), witness_end), console)

    def silence(self) -> None:
        """Forget the pipeline: its thread did not survive the fork."""
        self.end.pipeline = None
        self.exporters = []
        self.context.close()

    def _make_context(self) -> RunContext:
        state, recorder, totals = self.parts.state, self.parts.recorder, self.parts.totals
        context = RunContext()
        context.fields.update(
            run_id=self.proposed_run_id,
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

    def _make_exporters(self) -> list[Exporter]:
        # Not before the context is open: what is wrong with the settings is said of this run.
        if self._telemetry_of_run is None:
            self._telemetry_of_run = Telemetry(
                self.config, self._clock, self.parts.state, lambda: self.identity, self.context
            )
        return [self._record, *self._telemetry_of_run.open()]

    # Pipeline thread from here on.

    def _find_folder(self) -> RunFolder | None:
        if self.identity is None and self._refusal is not None:
            raise self._refusal
        return None if self.identity is None else self.identity.folder

    def _settled_folder(self) -> RunFolder | None:
        return None if self.identity is None else self.identity.folder

    def _begin(self) -> None:
        faults.call("session.identity", self._try_settle)
        if self.parts.state.oom is None:
            self.parts.state.oom = faults.call("observe.oom", find_oom)
        self._probes.start(self._clock())
        self._start_exporters()
        # Last: a scheduler that does not answer must not keep the first record waiting.
        faults.call("observe.allocation", self._allocation.look)

    def _start_exporters(self) -> None:
        faults.call("session.gang", self._gang.look)
        snapshot = self._builder.build(self._clock(), opens=True)
        self.snapshot = snapshot
        for exporter in self.exporters:
            faults.call(f"export.{exporter.name}.start", exporter.start, snapshot)

    def _try_settle(self) -> None:
        if self.identity is not None:
            return
        # A store that refuses is no fault of ours: the record's exporter meets the same refusal,
        # says so and counts it, and the next window tries again.
        try:
            self._settle()
        except StorageError as error:
            self._refusal = error

    def _settle_late(self) -> None:
        self._try_settle()
        if self.identity is not None:
            self._start_exporters()

    def _settle(self) -> None:
        state = self.parts.state
        self.identity = settle_identity(
            self._store,
            self._checkpoint_store,
            self.proposed_run_id,
            self._launch_key,
            describe_claimant(
                state, self.config.window_s, is_named_by_job=self.config.run_id is None
            ),
        )
        state.run = state.run.model_copy(update={"id": self.identity.run_id})
        state.number = self.identity.attempt
        state.launch_key = self.identity.launch_key
        self.context.fields.update(run_id=self.identity.run_id, attempt=self.identity.attempt)

    def _poll(self) -> None:
        parts = self.parts
        for count in parts.values.take_counts():
            parts.totals.add_late(count.name, count.number, count.value)
        for seen in parts.values.take_metrics():
            if seen.name == LOSS_SCALE:
                self._precision.see_scale(seen.value)
            else:
                parts.quality.add(seen.name, seen.value, seen.number, seen.mono_ns)
        parts.totals.resolve(parts.values.take_gaps())
        self._alarms.extend(parts.quality.fold())
        faults.call("observe.liveness", self._liveness.look)
        faults.call("observe.precision", self._precision.look)
        self._probes.look(self._clock())
        faults.call("protect.agreement", self._spending.poll)

    def _close_window(self, now_ns: int, is_last: bool) -> None:  # noqa: FBT001 - a stage's signature
        state = self.parts.state
        if self.identity is None:
            faults.call("session.identity", self._settle_late)
        faults.call("observe.allocation", self._allocation.look, is_last=is_last)
        faults.call("session.gang", self._gang.look, is_last=is_last)
        if is_last:
            self.parts.values.settle(self._clock() + NS_PER_S)
            self._poll()
            now_ns = self._clock()
            state.end_ns = now_ns
            self._probes.sample(now_ns)
            state.last_words = faults.call("observe.last_words", self._gather_last_words)
        else:
            state.oom = faults.call("observe.oom", recount_oom, state.oom)
            if self.identity is not None:
                faults.call("observe.tuning", self._tuning.look, self.identity.folder)
        snapshot = self._builder.build(now_ns, is_last=is_last, alarms=tuple(self._alarms))
        self._alarms.clear()
        snapshot = faults.call("session.spending", self._spending.complete, snapshot) or snapshot
        snapshot = faults.call("diagnose.findings", self._findings.complete, snapshot) or snapshot
        if is_last:
            faults.call("protect.agreement", self._spending.close)
        self.snapshot = snapshot
        # The record goes first: a line of the log may wait for whoever reads standard error, and
        # this may be the last thing that the process does.
        self._export(self.exporters[:1], snapshot)
        self._tell(snapshot)
        self._export(self.exporters[1:], snapshot)
        if is_last:
            self._probes.stop()
            deadline_ns = self._clock() + int(self.config.flush_timeout_s * NS_PER_S)
            for exporter in self.exporters:
                faults.call(f"export.{exporter.name}.finish", exporter.finish, deadline_ns)
            faults.call("session.amend", self._amend)

    def _gather_last_words(self) -> LastWordsPart | None:
        seen = self.parts.quality.look().attempt
        return gather_last_words(
            self.parts.state,
            {name: part.first_nonfinite_iteration for name, part in seen.items()},
        )

    def _export(self, exporters: Sequence[Exporter], snapshot: Snapshot) -> None:
        for exporter in exporters:
            faults.call(f"export.{exporter.name}", exporter.export, snapshot)

    def _tell(self, snapshot: Snapshot) -> None:
        for seen in snapshot.alarms:
            self.context.log.error(
                "costlens.nonfinite",
                metric=seen.name,
                value=str(seen.value),
                iteration=seen.iteration,
                message=f"{seen.name} of iteration {seen.iteration} is not a finite number",
            )
        words, outcome = snapshot.record.last_words, snapshot.record.attempt.outcome
        if words is not None and outcome is not Outcome.INTERRUPTED:
            own = self.context.log
            tell = own.error if outcome is Outcome.FAILED else own.warning
            told = words.model_dump(exclude_none=True)
            # The word alone means traces, metrics or logs.
            told["process_signal"] = told.pop("signal", None)
            tell(
                "costlens.run.failed",
                outcome=outcome.value,
                **{name: value for name, value in told.items() if value is not None},
                message=f"the run ended as {outcome.value}",
            )

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
        if self._record in self.exporters:
            self._record.amend(self.snapshot)

    def _telemetry(self) -> TelemetryPart:
        health = gather_health(self.exporters)
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
            control_failures=self._tuning.num_failures,
        )


def _identify_job(state: AttemptState) -> str | None:
    # One job may hold several trainings of a process, and repeats them in this order.
    job_id, turn = state.rank.job_id, state.turn
    return job_id if job_id is None or turn == 0 else f"{job_id}.{turn}"
