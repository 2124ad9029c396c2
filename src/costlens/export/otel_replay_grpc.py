"""The sender of a replay over OTLP/gRPC; loaded only where that is asked for.

Beside ``otel_replay``, which makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped] # has no types
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc

from costlens.errors import ConfigError
from costlens.export.otel_lines import decode_line
from costlens.export.otel_replay import name_certificates
from costlens.export.otel_replies import accept, safe_text
from costlens.export.otel_settings import SignalSettings
from costlens.export.otlp_json import read_facts
from costlens.export.otlp_replay import Reply

__all__ = ["GrpcSender"]

_STUBS: dict[str, Callable[[Any], Any]] = {
    "traces": trace_service_pb2_grpc.TraceServiceStub,
    "metrics": metrics_service_pb2_grpc.MetricsServiceStub,
    "logs": logs_service_pb2_grpc.LogsServiceStub,
}
_DENIED = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED", "UNIMPLEMENTED"})
# As the OTLP specification lists them.
_RETRYABLE = frozenset(
    {
        *("CANCELLED", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "ABORTED", "OUT_OF_RANGE"),
        *("UNAVAILABLE", "DATA_LOSS"),
    }
)


class GrpcSender:
    """Sends lines over OTLP/gRPC.

    Args:
        signals: Settings by signal.
        environ: Where certificates are named.

    Raises:
        ConfigError: If a certificate cannot be read.
    """

    def __init__(self, signals: Mapping[str, SignalSettings], environ: Mapping[str, str]) -> None:
        self._signals = signals
        self._channels = {name: _open(each, environ) for name, each in signals.items()}
        self._stubs = {name: _STUBS[name](channel) for name, channel in self._channels.items()}

    def send(self, signal: str, line: bytes) -> Reply:
        """Send one line and return what became of it; blocks for the export timeout at most."""
        settings = self._signals[signal]
        try:
            message, num_items = decode_line(signal, line), read_facts(line).num_items
        except ValueError as error:
            return Reply("corrupt", str(error))
        try:
            response = self._stubs[signal].Export(
                message, timeout=settings.timeout_s, metadata=tuple(settings.headers.items())
            )
        except grpc.RpcError as error:
            code = error.code().name
            reason = safe_text(f"gRPC {code} {error.details() or ''}", settings)
            if code in _RETRYABLE:
                return Reply("unavailable", reason)
            return Reply("denied" if code in _DENIED else "refused", reason)
        return replace(accept(settings, response.SerializeToString()), num_items=num_items)

    def close(self) -> None:
        """Close the connections."""
        for channel in self._channels.values():
            channel.close()


def _open(settings: SignalSettings, environ: Mapping[str, str]) -> Any:  # noqa: ANN401 - grpc has no types
    compression = {"gzip": grpc.Compression.Gzip, "deflate": grpc.Compression.Deflate}.get(
        settings.compression, grpc.Compression.NoCompression
    )
    is_plain = settings.insecure
    if is_plain is None:  # no scheme
        is_plain = environ.get("OTEL_EXPORTER_OTLP_INSECURE", "").lower() == "true"
    if is_plain:
        return grpc.insecure_channel(settings.target, compression=compression)
    authority, chain, key = (_read(p) for p in name_certificates(environ, settings.signal))
    credentials = grpc.ssl_channel_credentials(authority, key, chain)
    return grpc.secure_channel(settings.target, credentials, compression=compression)


def _read(path: str | None) -> bytes | None:
    try:
        return None if path is None else Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"a certificate that OTEL_EXPORTER_OTLP_* names cannot be read: {error}"
        ) from error
