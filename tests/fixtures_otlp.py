"""`otlp_receiver`: a real OTLP receiver for any test, and what it got, decoded.

One process per session, emptied and healed before each test. A conftest makes the fixtures known
with `from tests.fixtures_otlp import otlp_process, otlp_receiver`.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import pytest

SERVER = Path(__file__).parent / "backends" / "otlp_receiver.py"
Seen = TypeVar("Seen")


def attributes_of(pairs: Any) -> dict[str, Any]:
    """Return OTLP key-value pairs as a dictionary of plain values."""
    return {pair.key: _plain(pair.value) for pair in pairs}


def _plain(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_plain(element) for element in value.array_value.values]
    if kind == "kvlist_value":
        return attributes_of(value.kvlist_value.values)
    return None if kind is None else getattr(value, kind)


@dataclass(frozen=True)
class Request:
    """One request as it came in."""

    signal: str | None  # None: the path names none
    transport: str  # http, https, grpc or grpcs
    path: str  # exactly as sent, with the query
    headers: dict[str, str]  # names in lower case
    accepted: bool  # False: a fault refused it or never answered
    at_ns: int  # Unix time of arrival
    body: bytes  # protobuf, decompressed

    @property
    def message(self) -> Any:
        """Return the decoded export request."""
        from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
        from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
        from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

        kinds = {
            "traces": trace_service_pb2.ExportTraceServiceRequest,
            "metrics": metrics_service_pb2.ExportMetricsServiceRequest,
            "logs": logs_service_pb2.ExportLogsServiceRequest,
        }
        assert self.signal, f"{self.path} names no signal"
        return kinds[self.signal].FromString(self.body)


@dataclass(frozen=True)
class Item:
    """A span, a metric or a log record, with what it belongs to."""

    resource: dict[str, Any]
    scope: str
    proto: Any  # opentelemetry.proto Span, Metric or LogRecord

    @property
    def attributes(self) -> dict[str, Any]:
        """Return the item's own attributes; a metric has none."""
        return attributes_of(self.proto.attributes)


@dataclass(frozen=True)
class Point:
    """One data point of a metric."""

    name: str
    unit: str
    kind: str  # gauge, sum, histogram, exponential_histogram, summary
    resource: dict[str, Any]
    attributes: dict[str, Any]
    proto: Any

    @property
    def value(self) -> float:
        """Return the number of a gauge or sum, the sum of a histogram."""
        if self.kind not in {"gauge", "sum"}:
            return float(self.proto.sum)
        return float(getattr(self.proto, self.proto.WhichOneof("value")))


class OtlpReceiver:
    """The test's side of the receiver's process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process = subprocess.Popen(
            [sys.executable, str(SERVER)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        ports = json.loads(self._process.stdout.readline())
        self._control = f"http://127.0.0.1:{ports['control']}"
        self.http_port: int = ports["http"]

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    # ── where to send ────────────────────────────────────────────────────────────────────────
    @property
    def endpoint(self) -> str:
        """Return the base URL for OTLP/HTTP."""
        return f"http://127.0.0.1:{self.http_port}"

    @cached_property
    def grpc_port(self) -> int:
        """Return the port for OTLP/gRPC in plaintext."""
        return int(self._ask("/listen", kind="grpc")["port"])

    @cached_property
    def grpcs(self) -> tuple[int, Path]:
        """Return the port for OTLP/gRPC over TLS and the file of its authority's certificate."""
        return self._listen_tls("grpcs")

    @cached_property
    def https(self) -> tuple[int, Path]:
        """Return the port for OTLP/HTTP over TLS and the file of its authority's certificate."""
        return self._listen_tls("https")

    def _listen_tls(self, kind: str) -> tuple[int, Path]:
        answer = self._ask("/listen", kind=kind)
        authority = self._folder / f"{kind}.pem"
        authority.write_text(answer["ca"])
        return answer["port"], authority

    # ── what it does ─────────────────────────────────────────────────────────────────────────
    def clear(self) -> None:
        """Forget all requests and answer well again."""
        self._ask("/clear")

    def fault(self, **fault: Any) -> None:
        """Misbehave from now on (see `otlp_receiver.Fault`); without arguments, answer well."""
        self._ask("/fault", **fault)

    # ── what it got ──────────────────────────────────────────────────────────────────────────
    @property
    def requests(self) -> list[Request]:
        """Return every request since the last `clear`, accepted or not, in order of arrival."""
        with urllib.request.urlopen(self._control, timeout=10) as answer:
            received = json.load(answer)
        return [Request(**{**r, "body": base64.b64decode(r["body"])}) for r in received]

    def spans(self) -> list[Item]:
        """Return the accepted spans."""
        return self._items("traces", "resource_spans", "scope_spans", "spans")

    def metrics(self) -> list[Item]:
        """Return the accepted metrics, one item per metric and export."""
        return self._items("metrics", "resource_metrics", "scope_metrics", "metrics")

    def logs(self) -> list[Item]:
        """Return the accepted log records."""
        return self._items("logs", "resource_logs", "scope_logs", "log_records")

    def points(self, name: str | None = None) -> list[Point]:
        """Return the accepted data points, of one metric or of all, oldest export first."""
        points = []
        for item in self.metrics():
            metric = item.proto
            if name not in {None, metric.name}:
                continue
            kind = metric.WhichOneof("data")
            for proto in getattr(metric, kind).data_points:
                attributes = attributes_of(proto.attributes)
                points.append(
                    Point(metric.name, metric.unit, kind, item.resource, attributes, proto)
                )
        return points

    def wait_for(self, look: Callable[[OtlpReceiver], Seen], timeout_s: float = 10.0) -> Seen:
        """Return what `look(receiver)` returns as soon as it is true; fail after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while not (seen := look(self)):
            if time.monotonic() > deadline:
                paths = [(r.transport, r.path, r.accepted) for r in self.requests]
                pytest.fail(f"nothing of the kind within {timeout_s} s; requests so far: {paths}")
            time.sleep(0.02)
        return seen

    def _items(self, signal: str, resources: str, scopes: str, items: str) -> list[Item]:
        return [
            Item(attributes_of(of_resource.resource.attributes), of_scope.scope.name, proto)
            for request in self.requests
            if request.signal == signal and request.accepted
            for of_resource in getattr(request.message, resources)
            for of_scope in getattr(of_resource, scopes)
            for proto in getattr(of_scope, items)
        ]

    def _ask(self, path: str, **asked: Any) -> dict[str, Any]:
        request = urllib.request.Request(self._control + path, json.dumps(asked).encode())
        with urllib.request.urlopen(request, timeout=10) as answer:
            return dict(json.load(answer))


@pytest.fixture(scope="session")
def otlp_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtlpReceiver]:
    """Return the session's receiver as the last test left it; tests want `otlp_receiver`."""
    receiver = OtlpReceiver(tmp_path_factory.mktemp("otlp"))
    yield receiver
    receiver.stop()


@pytest.fixture
def otlp_receiver(otlp_process: OtlpReceiver) -> Iterator[OtlpReceiver]:
    """Return the receiver, empty and without faults."""
    otlp_process.clear()
    yield otlp_process
    otlp_process.clear()  # frees whoever still hangs in a fault
