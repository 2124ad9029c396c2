"""Traces: a marker per attempt, one short trace per period shared by all ranks, and its iterations.

Takes a snapshot once a window on the pipeline thread; a period becomes spans when it is over, so
that its root is there with its children. ``periods`` adds up, ``otel_drafts`` says what a span
holds, ``otel_spans`` writes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from opentelemetry.sdk.metrics import Exemplar
from opentelemetry.trace import SpanContext, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from costlens.config import Config
from costlens.core.checkpoint_records import SaveNote
from costlens.core.clock import NS_PER_S
from costlens.core.device_records import GpuPart
from costlens.core.host_records import HostPart
from costlens.core.records import Outcome, RankRecord
from costlens.core.snapshot import Snapshot
from costlens.core.window import Iteration
from costlens.export import otel_drafts as drafts
from costlens.export import otel_ids
from costlens.export.checkpoint_drafts import save_draft, save_parts
from costlens.export.job_readings import queue_draft
from costlens.export.otel_ids import run_key
from costlens.export.otel_spans import Spans
from costlens.export.periods import Period, SpanBudget, added_durations

if TYPE_CHECKING:
    from costlens.core.quality import Observation

__all__ = ["TracesExporter"]


class TracesExporter:
    """Turns windows into the spans of a run.

    ``costlens.run`` marks an attempt in a trace of its own, over at once; ``costlens.run.end``
    joins it when the attempt ends. A period's trace holds ``costlens.period`` (written by rank 0),
    one ``costlens.rank.period`` a rank, and under it ``costlens.iteration`` with a child per phase.
    Evaluation is time of the ``validation`` phase there, not a trace.

    Args:
        config: The settings.
        spans: Where spans go: ``OwnSpans``, or ``HostSpans`` where the application has a provider.
        traceparent: W3C trace context of what launched this process; a link, not a parent.
    """

    name = "otel_traces"

    def __init__(
        self,
        config: Config,
        spans: Spans,
        *,
        traceparent: str | None = None,
    ) -> None:
        # In periods shorter than a window ranks would not meet: their windows begin at different
        # moments, and a window belongs to the period it begins in.
        self._period_ns = int(max(config.trace_period_s, config.window_s) * NS_PER_S)
        self._spans = spans
        self._launcher = _parse(traceparent)
        self._number = 0
        self._budget = SpanBudget()
        self._open: dict[int, Period] = {}
        self._bins: Mapping[int, int] = {}
        self._exemplars: list[Exemplar] = []
        self._gpus: Sequence[GpuPart] = ()
        self._record: RankRecord | None = None
        self._host: HostPart | None = None
        self._marker: SpanContext | None = None
        self._is_wait_told = False

    @property
    def num_spans_dropped(self) -> int:
        """Return how many spans the hourly limit has kept back."""
        return self._budget.num_refused

    def take_exemplars(self) -> list[Exemplar]:
        """Return an exemplar for each iteration whose span was written since the last call."""
        taken, self._exemplars = self._exemplars, []
        return taken

    def current_ids(self) -> tuple[str, str] | None:
        """Return trace and span id (hexadecimal) of this rank's present period, for log lines.

        The window under way belongs to it. By the clock it might be one that gets no span: the run
        may end before its next window begins. None before ``start``, under a host's tracer, and
        where the rank is not traced in this period. Any thread.
        """
        record = self._record
        if record is None or self._marker is None:
            return None
        ids = otel_ids.rank_ids(*run_key(record), self._number, record.rank.rank)
        context = self._spans.locate(ids)
        if context is None or not _is_traced(record, ids.trace_id):
            return None
        return f"{context.trace_id:032x}", f"{context.span_id:016x}"

    def start(self, snapshot: Snapshot) -> None:
        """Write the marker of the attempt, once."""
        record, before = snapshot.record, self._record
        self._number = self._period_of(snapshot, snapshot.window.start_ns)
        self._record = record
        if before is not None and run_key(before) == run_key(record):
            return
        self._spans.open(record)
        self._open.clear()
        self._bins = {}
        self._gpus = record.gpus
        self._host = record.host
        self._is_wait_told = False
        self._marker = self._spans.locate(otel_ids.marker_ids(*run_key(record)))
        if record.rank.rank == 0:
            links = [(self._launcher, "launched_by")]
            run_id, attempt = run_key(record)
            if attempt > 1:
                previous = self._spans.locate(otel_ids.marker_ids(run_id, attempt - 1))
                links.append((previous, "resumed_from"))
            self._marker = self._spans.write(drafts.marker_draft(record, links))
            self._tell_wait(record)
            self._spans.flush()

    def export(self, snapshot: Snapshot) -> None:
        """Add a window to its period, and write the periods that are over."""
        window = snapshot.window
        self._record = snapshot.record
        self._budget.refill(window.end_ns)
        self._tell_wait(snapshot.record)
        # The last window may be empty, and begin a period that nothing happens in any more.
        is_empty = bool(self._open) and window.start_ns == window.end_ns
        number = max(self._open) if is_empty else self._period_of(snapshot, window.start_ns)
        opened = Period(number, window.start_ns, window.end_ns, host_before=self._host)
        period = self._open.setdefault(number, opened)
        self._note_gpus(period, snapshot.record.gpus)
        bins = snapshot.record.iteration_time.sketch
        seen = snapshot.quality.window.items()
        quality = {name: summary.last for name, summary in seen if summary.last is not None}
        period.host_after, self._host = snapshot.record.host, snapshot.record.host
        period.add(window, added_durations(bins, self._bins), quality)
        self._bins = bins
        # By its start, so that all ranks put a step into the same trace; if that one is written
        # already, into the present one.
        for kept in window.kept:
            self._open.get(self._period_of(snapshot, kept.start_ns), period).kept.append(kept)
        for alarm in snapshot.alarms:
            self._open.get(self._period_of(snapshot, alarm.mono_ns), period).alarms.append(alarm)
        for note in snapshot.saves:
            self._write_save(snapshot, note)
        for over in sorted(n for n in self._open if n < number or snapshot.is_last):
            self._write_period(snapshot, self._open.pop(over))
        if snapshot.is_last:
            self._write_end(snapshot)
        else:
            self._number = self._period_of(snapshot, window.end_ns)
        self._spans.flush()

    def finish(self, deadline_ns: int) -> None:
        """Do nothing: everything is submitted, and the workers flush under one deadline."""

    def _note_gpus(self, period: Period, gpus: Sequence[GpuPart]) -> None:
        if not period.gpus:
            period.gpus_before = self._gpus
        period.gpus = self._gpus = gpus

    def _tell_wait(self, record: RankRecord) -> None:
        # The scheduler may have answered only after the attempt was announced.
        draft = None if self._is_wait_told else queue_draft(record, self._marker)
        if draft is not None:
            self._is_wait_told = True
            self._spans.write(draft)

    def _period_of(self, snapshot: Snapshot, mono_ns: int) -> int:
        return snapshot.anchor.to_wall_ns(mono_ns) // self._period_ns

    def _write_period(self, snapshot: Snapshot, period: Period) -> None:
        record, anchor = snapshot.record, snapshot.anchor
        ids = otel_ids.period_ids(*run_key(record), period.number)
        root = self._spans.locate(ids)
        if record.rank.rank == 0 and self._budget.take(1):
            links = [(self._marker, "run")]
            root = self._spans.write(drafts.period_draft(record, period, anchor, links))
        if not _is_traced(record, ids.trace_id) or not self._budget.take(1):
            return
        chosen = period.choose(self._budget)
        draft = drafts.rank_draft(record, period, anchor, root, num_shown=len(chosen))
        parent = self._spans.write(draft)
        for kept in chosen:
            bad = [alarm for alarm in period.alarms if alarm.iteration == kept.index]
            self._write_iteration(snapshot, parent, kept, bad[0] if bad else None)
        shown = {kept.index for kept in chosen}
        for alarm in period.alarms:
            if alarm.iteration not in shown and self._budget.take(1):
                self._spans.write(drafts.alarm_draft(record, alarm, anchor, parent))

    def _write_save(self, snapshot: Snapshot, note: SaveNote) -> None:
        if not self._budget.take(3):
            return
        record = snapshot.record
        draft = save_draft(record, note, snapshot.anchor, [(self._marker, "run")])
        parent = self._spans.write(draft)
        for part in save_parts(record, draft, note):
            self._spans.write(replace(part, parent=parent))

    def _write_iteration(
        self, snapshot: Snapshot, parent: SpanContext, kept: Iteration, bad: Observation | None
    ) -> None:
        record, anchor = snapshot.record, snapshot.anchor
        draft = drafts.iteration_draft(record, kept, anchor, parent, bad)
        context = self._spans.write(draft)
        for phase in drafts.phase_drafts(record, kept, anchor, context):
            self._spans.write(phase)
        # The first iteration is start-up: the histogram does not hold it.
        if context.trace_flags.sampled and kept.reason != "first":
            where = (context.span_id, context.trace_id)
            self._exemplars.append(Exemplar({}, kept.iteration_ns / NS_PER_S, draft.end_ns, *where))

    def _write_end(self, snapshot: Snapshot) -> None:
        record = snapshot.record
        # Rank 0 speaks for the job, and a rank that failed for itself.
        speaks = record.rank.rank == 0 or record.attempt.outcome is Outcome.FAILED
        if speaks and self._budget.take(1):
            end_ns = snapshot.anchor.to_wall_ns(snapshot.window.end_ns)
            self._spans.write(drafts.end_draft(record, end_ns, self._marker))


def _is_traced(record: RankRecord, trace_id: int) -> bool:
    return otel_ids.should_trace(trace_id, record.rank.rank, record.rank.world_size)


def _parse(traceparent: str | None) -> SpanContext | None:
    if not traceparent:
        return None
    context = TraceContextTextMapPropagator().extract({"traceparent": traceparent})
    found = get_current_span(context).get_span_context()
    return found if found.is_valid else None
