"""What an endpoint answered, in words that are safe to show; for both senders of a replay."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError  # type: ignore[import-untyped] # has no types
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from costlens.export.otel_settings import SignalSettings
from costlens.export.otlp_replay import Reply

__all__ = ["accept", "safe_text"]

_RESPONSES: dict[str, tuple[Any, str]] = {
    "traces": (trace_service_pb2.ExportTraceServiceResponse, "rejected_spans"),
    "metrics": (metrics_service_pb2.ExportMetricsServiceResponse, "rejected_data_points"),
    "logs": (logs_service_pb2.ExportLogsServiceResponse, "rejected_log_records"),
}
_MAX_CHARS = 200
_MIN_SECRET = 4


def accept(settings: SignalSettings, body: bytes) -> Reply:
    """Return accepted, or partial where a successful response says that items were rejected.

    Args:
        settings: The signal's.
        body: The response as protobuf.
    """
    response, rejected = _RESPONSES[settings.signal]
    try:
        partial = response.FromString(body).partial_success
    except DecodeError:  # some endpoints answer in another format; the status said success
        return Reply("accepted")
    if not getattr(partial, rejected):
        return Reply("accepted")
    text = f"{getattr(partial, rejected)} items rejected {partial.error_message}"
    return Reply("partial", safe_text(text, settings))


def safe_text(text: str, settings: SignalSettings) -> str:
    """Return a server's words on one short line, without what it may repeat of our headers."""
    for value in sorted(settings.headers.values(), key=len, reverse=True):
        for secret in (value, value.rpartition(" ")[2]):
            if len(secret) >= _MIN_SECRET:
                text = text.replace(secret, "…")
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= _MAX_CHARS else line[:_MAX_CHARS] + "…"
