"""Logs over OpenTelemetry: the events of costlens's own log as OTLP log records, where asked for.

A tap of the run's log takes each event on the thread that logs it; the pipeline thread hands what
has gathered to the worker once a window. No handler is attached to any logger, so neither the
exporter's own complaints nor other libraries' lines can come in.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.context import Context
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    INVALID_SPAN,
    NonRecordingSpan,
    SpanContext,
    TraceFlags,
    set_span_in_context,
)

from costlens.core.clock import Clock
from costlens.core.log import RunContext
from costlens.core.snapshot import Snapshot
from costlens.export.otel_endpoint import build_resource
from costlens.export.otel_ids import run_key
from costlens.export.otel_port import Outbox
from costlens.export.readings import label_attributes

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

__all__ = ["LogsExporter"]

_CAPACITY = 1000
_BATCH = 64

_SEVERITIES = {
    "debug": SeverityNumber.DEBUG,
    "info": SeverityNumber.INFO,
    "warning": SeverityNumber.WARN,
    "error": SeverityNumber.ERROR,
    "critical": SeverityNumber.FATAL,
}
# Fields with a name of OpenTelemetry's or of the catalogue; "costlens." comes before all others.
_NAMES = {
    "run_id": "costlens.run.id",
    "attempt": "costlens.attempt",
    "rank": "costlens.rank",
    "step": "costlens.step",
    "iteration": "costlens.iteration",
    "host_name": "host.name",
    "job_id": "costlens.job.id",
    "error_type": "error.type",
    "exit_code": "process.exit.code",
    "process_signal": "costlens.process.signal",
}
_DROPPED = {
    "event": "costlens.log.dropped",
    "level": "warning",
    "message": "more was logged in a window than is exported",
}
_NOT_ATTRIBUTES = frozenset({"event", "level", "timestamp", "message", "trace_id", "span_id"})


class LogsExporter:
    """Hands a run's log events, and those that are nobody's, to the worker of the ``logs`` signal.

    It taps the log until ``finish``.

    Args:
        workers: Takes ready batches.
        context: The run in the log.
        wall_clock: Unix nanoseconds.
    """

    name = "otel_logs"

    def __init__(
        self, workers: Outbox, context: RunContext, *, wall_clock: Clock = time.time_ns
    ) -> None:
        self._workers = workers
        self._taps = context.taps
        self._wall_clock = wall_clock
        self._events: deque[tuple[int, Mapping[str, Any]]] = deque(maxlen=_CAPACITY)
        self._num_dropped = 0
        self._resource: Resource | None = None
        self._identity: tuple[str, int] | None = None
        self._listen()

    def take(self, event: Mapping[str, Any]) -> None:
        """Keep an event for the next window; any thread, about 3 µs; the oldest go when 1000 wait.

        Only plain values are kept: an exception would hold on to everything its frames hold.
        """
        plain = {name: kept for name, value in event.items() if (kept := _plain(value)) is not None}
        self._num_dropped += len(self._events) == _CAPACITY
        self._events.append((self._wall_clock(), plain))

    def start(self, snapshot: Snapshot) -> None:
        """Export what was logged before the run was known."""
        self._listen()
        self.export(snapshot)

    def export(self, snapshot: Snapshot) -> None:
        """Export the events since the last window, in batches of at most 64."""
        record = snapshot.record
        identity = run_key(record)
        if self._resource is None or identity != self._identity:
            self._identity = identity
            attributes = label_attributes(record.run)
            self._resource = build_resource(*identity, record.rank.rank, attributes)
        scope = InstrumentationScope("costlens", record.run.costlens_version)
        events = [self._events.popleft() for _ in range(len(self._events))]
        if self._num_dropped:
            events.append((self._wall_clock(), {**_DROPPED, "num_events": self._num_dropped}))
            self._num_dropped = 0
        ready = [ReadableLogRecord(_log_record(*event), self._resource, scope) for event in events]
        for first in range(0, len(ready), _BATCH):
            batch = ready[first : first + _BATCH]
            self._workers.submit("logs", batch, len(batch))

    def finish(self, deadline_ns: int) -> None:
        """Stop listening; the workers flush under one deadline."""
        if self.take in self._taps:
            self._taps.remove(self.take)

    def _listen(self) -> None:
        if self.take not in self._taps:
            self._taps.append(self.take)


def _plain(value: object) -> str | int | float | tuple[str, ...] | None:
    if isinstance(value, (str, int, float)):
        return value
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return tuple(value)  # such as a stack
    return None


def _log_record(wall_ns: int, event: Mapping[str, Any]) -> LogRecord:
    name = str(event.get("event", ""))
    level = str(event.get("level", "info"))
    return LogRecord(
        timestamp=wall_ns,
        observed_timestamp=wall_ns,
        context=_context(event),
        severity_text=level.upper(),
        severity_number=_SEVERITIES.get(level, SeverityNumber.INFO),
        body=event.get("message", name),
        attributes={
            _NAMES.get(key, f"costlens.{key}"): value
            for key, value in event.items()
            if key not in _NOT_ATTRIBUTES
        },
        event_name=name,
    )


def _context(event: Mapping[str, Any]) -> Context:
    # Never the span that happens to be open on the pipeline thread: an event names its own or none.
    try:
        ids = (int(event["trace_id"], 16), int(event["span_id"], 16))
    except (KeyError, TypeError, ValueError):
        return set_span_in_context(INVALID_SPAN, Context())
    span = SpanContext(*ids, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    return set_span_in_context(NonRecordingSpan(span), Context())
