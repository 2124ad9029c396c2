"""Lines of a telemetry file: OTLP JSON as its specification writes it, and back again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

from costlens.config import Config
from costlens.core.log import RunContext
from costlens.export.otel_lines import decode_line, encode_line
from costlens.export.otel_logs import LogsExporter
from costlens.export.otel_metrics import MetricsExporter
from costlens.export.otel_spans import OwnSpans
from costlens.export.otel_traces import TracesExporter
from tests.unit.export.rehearsal import Outbox, complete

ENCODERS = {"traces": encode_spans, "metrics": encode_metrics, "logs": encode_logs}


@pytest.fixture(scope="module", name="batches")
def _batches() -> list[tuple[str, Any]]:
    """Return batches of all signals, of a run about which everything is known."""
    outbox, run, context = Outbox(), complete(), RunContext()
    traces = TracesExporter(Config(), OwnSpans(outbox))  # type: ignore[arg-type]
    exporters = (
        traces,
        MetricsExporter(outbox, take_exemplars=traces.take_exemplars),  # type: ignore[arg-type]
        LogsExporter(outbox, context),  # type: ignore[arg-type]
    )
    first = run.look(opens=True)
    for exporter in exporters:
        exporter.start(first)
    context.log.warning("costlens.test", message='a "quoted"\ntext: {"traceId":"AAAA"} ü ')
    for _ in range(7):
        run.steps(10)
        run.log(loss=float("nan"))
        snapshot = run.look()
        for exporter in exporters:
            exporter.export(snapshot)
    for exporter in exporters:
        exporter.finish(0)
    return [(signal, batch) for signal, batch, _ in outbox.batches]


def line_of(batches: list[tuple[str, Any]], signal: str) -> Any:
    """Return the last line of a signal, decoded as any JSON reader would."""
    line = [encode_line(signal, batch) for name, batch in batches if name == signal][-1]
    return json.loads(line)


@pytest.mark.parametrize("signal", ["traces", "metrics", "logs"])
def test_lines_become_what_the_sdk_would_have_sent(
    batches: list[tuple[str, Any]], signal: str
) -> None:
    """Byte for byte in protobuf, whatever is in a batch: ids, times, exemplars, awkward texts."""
    of_signal = [batch for name, batch in batches if name == signal]
    assert of_signal
    for batch in of_signal:
        message = decode_line(signal, encode_line(signal, batch))
        sent = ENCODERS[signal](batch)
        assert message.SerializeToString(deterministic=True) == sent.SerializeToString(
            deterministic=True
        )


@pytest.mark.parametrize("signal", ["traces", "metrics", "logs"])
def test_a_line_is_one_line_of_utf8(batches: list[tuple[str, Any]], signal: str) -> None:
    """JSON lines are separated by a line break and hold none."""
    for name, batch in batches:
        if name == signal:
            line = encode_line(signal, batch)
            assert b"\n" not in line
            assert isinstance(json.loads(line.decode("utf-8")), dict)


def test_spans_are_written_as_the_specification_says(batches: list[tuple[str, Any]]) -> None:
    """Members in lowerCamelCase, ids in hexadecimal, 64-bit integers as text, enums as numbers."""
    (of_resource,) = line_of(batches, "traces")["resourceSpans"]
    spans = of_resource["scopeSpans"][0]["spans"]
    span = next(s for s in spans if s["name"] == "costlens.iteration")
    assert len(bytes.fromhex(span["traceId"])) == 16
    assert len(bytes.fromhex(span["spanId"])) == len(bytes.fromhex(span["parentSpanId"])) == 8
    assert int(span["endTimeUnixNano"]) > int(span["startTimeUnixNano"]) > 1e18
    assert isinstance(span["startTimeUnixNano"], str)
    assert span["kind"] == 1
    period = next(s for s in spans if s["name"] == "costlens.period")
    assert len(bytes.fromhex(period["links"][0]["traceId"])) == 16
    resource = {a["key"]: a["value"] for a in of_resource["resource"]["attributes"]}
    assert resource["costlens.attempt"] == {"intValue": "1"}


def test_metrics_are_written_as_the_specification_says(batches: list[tuple[str, Any]]) -> None:
    """Integers as text, doubles as numbers, temporality as a number, exemplars with ids."""
    metrics = {
        metric["name"]: metric
        for batch in (b for name, b in batches if name == "metrics")
        for metric in json.loads(encode_line("metrics", batch))["resourceMetrics"][0][
            "scopeMetrics"
        ][0]["metrics"]
    }
    assert metrics["costlens.iterations"]["sum"]["aggregationTemporality"] == 2
    assert metrics["costlens.iterations"]["sum"]["dataPoints"][0]["asInt"] == "90"
    assert isinstance(metrics["costlens.cost.rate"]["gauge"]["dataPoints"][0]["asDouble"], float)
    (point,) = metrics["costlens.iteration.duration"]["histogram"]["dataPoints"]
    assert isinstance(point["count"], str)
    assert all(isinstance(count, str) for count in point["bucketCounts"])


def test_logs_are_written_as_the_specification_says(batches: list[tuple[str, Any]]) -> None:
    """Severity as a number; the text comes through whatever is in it."""
    records = line_of(batches[:4], "logs")["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    record = next(r for r in records if r["eventName"] == "costlens.test")
    assert record["severityNumber"] == 13
    assert record["body"] == {"stringValue": 'a "quoted"\ntext: {"traceId":"AAAA"} ü '}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"not json", "not OTLP JSON"),
        (b"\xff", "invalid start byte"),
        (b'{"resourceSpans": 3}', "not OTLP JSON"),
        (b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "xyz"}]}]}]}', "hexadecimal"),
        (b'{"resourceMetrics": []}', "holds no traces"),
        (b"{}", "holds no traces"),
    ],
)
def test_what_is_no_line_of_a_signal_is_refused(line: bytes, why: str) -> None:
    """A damaged line, or one of another signal, is an error, never an empty request."""
    with pytest.raises(ValueError, match=why):
        decode_line("traces", line)


def test_members_of_a_newer_protocol_are_skipped() -> None:
    """As the specification asks of every reader."""
    text = b'{"resourceSpans":[{"scopeSpans":[],"newThing":{"a":1}}],"other":3}'
    assert len(decode_line("traces", text).resource_spans) == 1
