"""OTLP JSON: how ids are written, and what a line says about itself."""

from __future__ import annotations

import base64
import json

import pytest

from costlens.export.otlp_json import LineFacts, ids_to_base64, ids_to_hex, read_facts

TRACE_ID = "5b8efff798038103d269b633813fc60c"


def test_ids_are_hexadecimal_and_nothing_else_changes() -> None:
    """Members named like ids change; texts that look the same, escaped, and other bytes do not."""
    plain = base64.b64encode(bytes.fromhex(TRACE_ID)).decode()
    document = {
        "traceId": plain,
        "parentSpanId": "",
        "name": f'{{"traceId":"{plain}"}}',
        "bytesValue": plain,
        "key": "traceId",
    }
    text = json.dumps(document)
    assert json.loads(ids_to_hex(text)) == {**document, "traceId": TRACE_ID}
    assert json.loads(ids_to_base64(ids_to_hex(text))) == document


def test_upper_case_ids_are_read() -> None:
    """The specification lets ids be written in either case."""
    assert ids_to_base64('{"spanId": "EEE19B7EC3C1B174"}') == '{"spanId":"7uGbfsPBsXQ="}'


def test_an_id_that_is_no_hexadecimal_is_refused() -> None:
    """A damaged id is an error, not another id."""
    with pytest.raises(ValueError, match="hexadecimal"):
        ids_to_base64('{"spanId":"xyz"}')


def line(**layers: object) -> bytes:
    """Return a line of these top-level members."""
    return json.dumps(layers).encode()


def test_facts_of_spans() -> None:
    """Spans count one by one, from the earliest start to the latest end."""
    spans = [
        {"startTimeUnixNano": "50", "endTimeUnixNano": "90"},
        {"startTimeUnixNano": "40", "endTimeUnixNano": "60"},
    ]
    found = read_facts(line(resourceSpans=[{"scopeSpans": [{"spans": spans}]}]))
    assert found == LineFacts(2, 40, 90)


def test_facts_of_metrics() -> None:
    """Data points count, of every kind; when a counter began is not when it was read."""
    point = {"startTimeUnixNano": "1", "timeUnixNano": "50"}
    metrics = [
        {"name": "a", "sum": {"dataPoints": [point, {**point, "timeUnixNano": "60"}]}},
        {"name": "b", "gauge": {"dataPoints": [point]}},
        {"name": "c", "histogram": {"dataPoints": [point]}},
    ]
    found = read_facts(line(resourceMetrics=[{"scopeMetrics": [{"metrics": metrics}]}]))
    assert found == LineFacts(4, 50, 60)


def test_facts_of_logs() -> None:
    """A record without a time of its own counts at the time it was observed."""
    records = [{"timeUnixNano": "7"}, {"observedTimeUnixNano": "9"}]
    found = read_facts(line(resourceLogs=[{"scopeLogs": [{"logRecords": records}]}]))
    assert found == LineFacts(2, 7, 9)


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"not json",
        b"\xff",
        b"[]",
        b"3",
        b'{"resourceSpans": 3}',
        b'{"resourceSpans": [3]}',
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [null]}]}]}',
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"startTimeUnixNano": "x"}]}]}]}',
        b"[" * 100_000,
    ],
)
def test_a_damaged_line_is_a_value_error(damaged: bytes) -> None:
    """Whatever is wrong with a line, there is one kind of error to expect."""
    with pytest.raises(ValueError, match="the line is not OTLP JSON"):
        read_facts(damaged)


def test_an_empty_document_is_about_nothing() -> None:
    """It is valid OTLP without items."""
    assert read_facts(b"{}") == LineFacts(0, 0, 0)
