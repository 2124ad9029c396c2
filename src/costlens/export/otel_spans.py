"""Writes finished spans: under ids of our own, or through the host application's tracer.

``otel_traces`` decides what to write. Spans are built afterwards with explicit times, on the
pipeline thread; nothing here becomes global.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Decision, Sampler
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    NoOpTracer,
    SpanContext,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    get_tracer_provider,
    set_span_in_context,
)

from costlens.export.otel_drafts import Draft
from costlens.export.otel_endpoint import build_resource
from costlens.export.otel_ids import Ids
from costlens.export.otel_port import Outbox
from costlens.export.readings import label_attributes

if TYPE_CHECKING:
    from costlens.core.records import RankRecord

__all__ = ["HostSpans", "OwnSpans", "Spans", "host_spans"]

_BATCH = 64
"""Most spans of a batch: encoding 512 at once held up the training thread for 4 ms."""


class Spans(Protocol):
    """Where drafts go."""

    def open(self, record: RankRecord) -> None:
        """Get ready for the attempt of this record."""

    def locate(self, ids: Ids) -> SpanContext | None:
        """Return the span that any rank writes under these ids, or None where ids are not ours."""

    def write(self, draft: Draft) -> SpanContext:
        """Write a span and return where it stands."""

    def flush(self) -> None:
        """Hand over what was written."""


class OwnSpans:
    """Writes spans under hashed ids and hands them to the worker of the ``traces`` signal.

    Args:
        workers: Takes ready batches.
    """

    def __init__(self, workers: Outbox) -> None:
        self._workers = workers
        self._ids = _GivenIds()
        self._ended = _Collector()
        self._tracer: Tracer = NoOpTracer()
        self._sampler: Sampler = ALWAYS_ON

    def open(self, record: RankRecord) -> None:
        """Build the tracer for the attempt of this record."""
        provider = TracerProvider(
            shutdown_on_exit=False,
            id_generator=self._ids,
            resource=build_resource(
                record.run.id, record.attempt.number, record.rank.rank, label_attributes(record.run)
            ),
        )
        provider.add_span_processor(self._ended)
        self._sampler = provider.sampler
        # The provider is let go, the tracer works without it: while it lives, every fork of the
        # process (every loader worker) starts threads to bring its resource up to date.
        self._tracer = provider.get_tracer("costlens", record.run.costlens_version)

    def locate(self, ids: Ids) -> SpanContext | None:
        """Return the span that any rank writes under these ids."""
        # All ranks sample a trace alike, for a sampler decides by its id.
        result = self._sampler.should_sample(Context(), ids.trace_id, "")
        is_sampled = result.decision is Decision.RECORD_AND_SAMPLE
        flags = TraceFlags(TraceFlags.SAMPLED if is_sampled else TraceFlags.DEFAULT)
        return SpanContext(ids.trace_id, ids.span_id, is_remote=True, trace_flags=flags)

    def write(self, draft: Draft) -> SpanContext:
        """Write a span under its ids; about 30 µs."""
        self._ids.given = draft.ids
        return _write(self._tracer, draft)

    def flush(self) -> None:
        """Submit what was written, at most 64 spans a batch."""
        spans, self._ended.spans = self._ended.spans, []
        for first in range(0, len(spans), _BATCH):
            batch = spans[first : first + _BATCH]
            self._workers.submit("traces", batch, len(batch))


class HostSpans:
    """Writes spans through the host application's tracer provider, which gives them its own ids.

    Ranks then cannot agree on a trace: a root carries the hashed id that its trace would have had
    as the attribute ``costlens.trace.key``.

    Args:
        provider: The host's provider.
    """

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer: Tracer = NoOpTracer()

    def open(self, record: RankRecord) -> None:
        """Get a tracer."""
        self._tracer = self._provider.get_tracer("costlens", record.run.costlens_version)

    def locate(self, ids: Ids) -> SpanContext | None:
        """Return None: where another span stands is not known."""
        return None

    def write(self, draft: Draft) -> SpanContext:
        """Write a span; the host's processors take it from there."""
        if draft.parent is None:
            key = f"{draft.ids.trace_id:032x}"
            draft = replace(draft, attributes={**draft.attributes, "costlens.trace.key": key})
        return _write(self._tracer, draft)

    def flush(self) -> None:
        """Do nothing: the host flushes its provider."""


def host_spans() -> HostSpans | None:
    """Return a writer for the tracer provider the host has set, or None; sets nothing itself."""
    provider = get_tracer_provider()
    return HostSpans(provider) if isinstance(provider, TracerProvider) else None


def _write(tracer: Tracer, draft: Draft) -> SpanContext:
    context = Context()
    if draft.parent is not None:
        context = set_span_in_context(NonRecordingSpan(draft.parent), context)
    span = tracer.start_span(
        draft.name,
        context,
        attributes={k: v for k, v in draft.attributes.items() if v is not None},
        links=[
            Link(linked, {"costlens.link": meaning})
            for linked, meaning in draft.links
            if linked is not None
        ],
        start_time=draft.start_ns,
    )
    if draft.error is not None:
        span.set_status(Status(StatusCode.ERROR, draft.error))
    span.end(draft.end_ns)
    return span.get_span_context()


class _GivenIds(RandomIdGenerator):
    """Gives the next span the ids it was told to."""

    given: Ids | None = None

    def generate_trace_id(self) -> int:
        return self.given.trace_id if self.given else super().generate_trace_id()

    def generate_span_id(self) -> int:
        return self.given.span_id if self.given else super().generate_span_id()


class _Collector(SpanProcessor):
    """Keeps the spans that ended until they are flushed."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)
