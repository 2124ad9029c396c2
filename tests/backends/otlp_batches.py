"""Small ready batches of each signal, as the SDK's exporters take them."""

from __future__ import annotations

from typing import Any

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk.metrics.export import (
    Gauge,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, TraceFlags

SCOPE = InstrumentationScope("tests")
RESOURCE = Resource({"service.name": "tests"})


def spans(*names: str, resource: Resource = RESOURCE) -> list[ReadableSpan]:
    """Return one finished span per name."""
    return [
        ReadableSpan(
            name,
            context=SpanContext(1, position, is_remote=False, trace_flags=TraceFlags(1)),
            resource=resource,
            attributes={"tests.name": name},
            start_time=1,
            end_time=2,
            instrumentation_scope=SCOPE,
        )
        for position, name in enumerate(names, start=1)
    ]


def metrics(name: str, value: float, resource: Resource = RESOURCE) -> MetricsData:
    """Return one gauge with one point."""
    gauge = Gauge([NumberDataPoint({"tests.name": name}, 1, 2, value)])
    scope = ScopeMetrics(SCOPE, [Metric(name, "a test", "s", gauge)], "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def logs(body: str, resource: Resource = RESOURCE) -> list[ReadableLogRecord]:
    """Return one log record."""
    record = LogRecord(
        timestamp=1, body=body, severity_number=SeverityNumber.INFO, event_name="tests.event"
    )
    return [ReadableLogRecord(record, resource=resource, instrumentation_scope=SCOPE)]


def batch_of(signal: str) -> Any:
    """Return a batch with one item of a signal."""
    return {"traces": spans("one"), "metrics": metrics("one", 1.0), "logs": logs("one")}[signal]
