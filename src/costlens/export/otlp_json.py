"""OTLP in JSON, as the lines of a telemetry file hold it: ids in hexadecimal, what a line is about.

Between ``otel_file``/``otel_replay``, which know protobuf, and the files; pure and without
OpenTelemetry.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

__all__ = ["LineFacts", "ids_to_base64", "ids_to_hex", "read_facts"]

# Protobuf's JSON writes bytes as base64, OTLP writes these three as hexadecimal. Inside a string a
# quote is escaped, so the pattern matches members of objects only: no text of a user looks like it.
_ID = re.compile(r'"(traceId|spanId|parentSpanId)"\s*:\s*"([0-9A-Za-z+/=]*)"')

_LAYERS = {
    "resourceSpans": ("scopeSpans", "spans"),
    "resourceMetrics": ("scopeMetrics", "metrics"),
    "resourceLogs": ("scopeLogs", "logRecords"),
}
_KINDS = ("gauge", "sum", "histogram", "exponentialHistogram", "summary")
_STARTS = ("startTimeUnixNano", "timeUnixNano", "observedTimeUnixNano")
_ENDS = ("endTimeUnixNano", "timeUnixNano", "observedTimeUnixNano")


class LineFacts(NamedTuple):
    """What a line is about.

    Args:
        num_items: Spans, data points or log records.
        first_ns: Unix time of the oldest; 0 for a line without items.
        last_ns: Unix time of the newest.
    """

    num_items: int
    first_ns: int
    last_ns: int


def ids_to_hex(text: str) -> str:
    """Return OTLP JSON for the JSON that protobuf writes."""
    return _ID.sub(lambda m: f'"{m[1]}":"{base64.b64decode(m[2]).hex()}"', text)


def ids_to_base64(text: str) -> str:
    """Return JSON that protobuf reads for OTLP JSON.

    Raises:
        ValueError: If an id is not hexadecimal.
    """
    return _ID.sub(lambda m: f'"{m[1]}":"{base64.b64encode(bytes.fromhex(m[2])).decode()}"', text)


def read_facts(line: bytes) -> LineFacts:
    """Return what a line of a telemetry file is about; about 10 ms a megabyte.

    Raises:
        ValueError: If it is not OTLP JSON.
    """
    try:
        items = [(_time(item, _STARTS), _time(item, _ENDS)) for item in _items(json.loads(line))]
    except (AttributeError, RecursionError, TypeError, ValueError) as error:
        raise ValueError("the line is not OTLP JSON") from error
    if not items:
        return LineFacts(0, 0, 0)
    return LineFacts(len(items), min(start for start, _ in items), max(end for _, end in items))


def _items(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the spans, data points and log records of a document."""
    for resources, (scopes, items) in _LAYERS.items():
        for of_resource in document.get(resources, ()):
            for of_scope in of_resource.get(scopes, ()):
                for item in of_scope.get(items, ()):
                    yield from _points(item) if items == "metrics" else (item,)


def _points(metric: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for kind in _KINDS:
        yield from metric.get(kind, {}).get("dataPoints", ())


def _time(item: Mapping[str, Any], names: tuple[str, ...]) -> int:
    # A data point's start is when its counter began, not when it was measured.
    if "timeUnixNano" in item:
        return int(item["timeUnixNano"])
    return next((int(item[name]) for name in names if name in item), 0)
