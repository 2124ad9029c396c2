"""Builds the SDK's OTLP exporters and the resource from the ``OTEL_*`` variables, at start-up.

The result of ``build_exporters`` goes into ``otel_worker.ExportWorkers``. The SDK's exporters do
the work; where they depart from the specification, or would print a header's value, it is put right
at their edge.
"""

from __future__ import annotations

import enum
import logging
import os
import random
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from costlens.core.log import log
from costlens.export.otel_noise import captured, quiet_loggers
from costlens.export.otel_port import ExportResult
from costlens.export.otel_settings import (
    ExportSettings,
    Signal,
    SignalSettings,
    parse_settings,
)

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.util.types import AttributeValue

    from costlens.export.otel_session import WatchedSession

__all__ = [
    "SignalExporter",
    "build_exporters",
    "build_resource",
    "read_settings",
    "read_traceparent",
]

_REFUSED = "the collector refused the credentials; check OTEL_EXPORTER_OTLP_HEADERS"
_HINTS = {
    "http_401": _REFUSED,
    "http_403": _REFUSED,
    "http_404": "the collector knows no such path; OTEL_EXPORTER_OTLP_ENDPOINT gets /v1/<signal> "
    "appended, a signal's own endpoint is used as given",
    "SSLError": "the TLS handshake failed; for a plaintext collector write http://, for a private "
    "authority set OTEL_EXPORTER_OTLP_CERTIFICATE",
    "OSError": "a certificate file cannot be read; check OTEL_EXPORTER_OTLP_CERTIFICATE",
    "grpc_UNAUTHENTICATED": _REFUSED,
    "grpc_PERMISSION_DENIED": _REFUSED,
    "grpc_UNIMPLEMENTED": "the collector does not take this signal over gRPC",
    "grpc_tls_handshake": "the TLS handshake failed; an endpoint without a scheme is spoken to "
    "over TLS, so for a plaintext collector write http:// or set OTEL_EXPORTER_OTLP_INSECURE=true; "
    "for a private authority set OTEL_EXPORTER_OTLP_CERTIFICATE",
}
_GRPC_RETRYABLE = frozenset(
    {"CANCELLED", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "ABORTED", "UNAVAILABLE", "DATA_LOSS"}
)


_FORK_SUPPORT = "GRPC_ENABLE_FORK_SUPPORT"
# Processes that have spoken gRPC: this one, and those that it was forked from.
_grpc_pids: set[int] = set()


class _SdkExporter(Protocol):
    def export(self, batch: Any, /) -> enum.Enum: ...  # noqa: ANN401 - another type per signal

    def shutdown(self) -> None: ...


class SignalExporter:
    """An SDK exporter behind the port of ``otel_worker``: outcomes in safe words, log caught.

    Args:
        settings: The signal's settings.
        exporter: The SDK's exporter.
        session: The HTTP session it uses; None for gRPC, and where a credential provider makes it.
    """

    def __init__(
        self, settings: SignalSettings, exporter: _SdkExporter, session: WatchedSession | None
    ) -> None:
        self.settings = settings
        self._exporter = exporter
        self._session = session

    @property
    def temporality(self) -> Mapping[type, enum.Enum] | None:
        """Return what the back-end prefers per kind of metric, as the SDK's exporter keeps it."""
        return getattr(self._exporter, "_preferred_temporality", None)

    @property
    def server_date(self) -> str | None:
        """Return the Date header of the last HTTP answer, None where there was none."""
        return None if self._session is None else self._session.server_date

    def export(self, batch: Any) -> ExportResult:  # noqa: ANN401 - another type per signal
        """Send one batch and return how it ended; blocks up to ``timeout_s``, worker thread only.

        Args:
            batch: What the SDK's exporter takes: ReadableSpans, MetricsData or ReadableLogRecords.
        """
        if self._session is not None:
            self._session.forget()
        with captured() as records:
            is_ok = self._exporter.export(batch).name == "SUCCESS"
        if self._session is not None:
            return self._with_hint(self._session.outcome)
        if is_ok:
            return ExportResult(ok=True)
        return self._with_hint(_grpc_outcome(records))

    def shutdown(self) -> None:
        """Close the connection and end the waits between retries; any thread."""
        with captured():
            self._exporter.shutdown()

    def _with_hint(self, result: ExportResult) -> ExportResult:
        if result.ok:
            return result
        hint = _HINTS.get(result.error_type, "the collector cannot be reached, or does not answer")
        if self.settings.protocol == "http/protobuf" and self.settings.target.endswith(":4317"):
            hint += "; port 4317 is usually gRPC: set OTEL_EXPORTER_OTLP_PROTOCOL=grpc"
        return replace(result, hint=f"{self.settings.target}: {hint}")


def read_settings(base_url: str | None = None) -> ExportSettings:
    """Return what the environment asks to export, after logging each problem once.

    Args:
        base_url: A base endpoint given in code; wins over the variables.
    """
    settings = parse_settings(os.environ, base_url)
    for problem in settings.problems:
        _warn(problem)
    return _leave_out_grpc(settings) if _grpc_pids - {os.getpid()} else settings


def _leave_out_grpc(settings: ExportSettings) -> ExportSettings:
    """Return the settings of a process that was forked from one that speaks gRPC.

    There gRPC hangs, or breaks the parent's connections, with and without its own support for
    forks.
    """
    kept = {signal: on for signal, on in settings.signals.items() if on.protocol != "grpc"}
    if len(kept) < len(settings.signals):
        _warn(
            "gRPC does not survive a fork, and this process was forked from one that uses it: its "
            "telemetry is not sent; set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf, or start it "
            "with the method spawn"
        )
    return replace(settings, signals=kept)


def build_exporters(settings: ExportSettings) -> dict[Signal, SignalExporter]:
    """Return one exporter per signal that is on, ready to send; takes 0.1–0.3 s, start-up only.

    A signal whose exporter cannot be built is left out with a warning: training must not fail for
    its telemetry.
    """
    exporters: dict[Signal, SignalExporter] = {}
    for signal, wanted in settings.signals.items():
        build = _build_grpc if wanted.protocol == "grpc" else _build_http
        try:
            # The SDK prints a header that it cannot read; read_settings has warned without it.
            with captured():
                exporters[signal] = build(wanted)
        except (OSError, ValueError, RuntimeError, ImportError) as error:
            _warn(
                f"{signal} will not be exported: the {wanted.protocol} exporter cannot be built "
                f"from the OTEL_EXPORTER_OTLP_* variables ({type(error).__name__})"
            )
    quiet_loggers()
    return exporters


def build_resource(
    run_id: str,
    attempt: int,
    rank: int,
    attributes: Mapping[str, AttributeValue] | None = None,
) -> Resource:
    """Return what the telemetry of this rank is about; runs no detector that could block.

    ``OTEL_RESOURCE_ATTRIBUTES`` and ``OTEL_SERVICE_NAME`` win, except over the identity: ranks
    share their environment, and two writers under one instance id corrupt each other's series.

    Args:
        run_id: The run's id.
        attempt: Number of the launch, from 1.
        rank: This rank, from 0.
        attributes: Further attributes, such as where the job runs.
    """
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.version import __version__ as sdk_version

    known: dict[str, AttributeValue] = {
        "service.name": "costlens",
        "host.name": socket.gethostname(),
        "process.pid": os.getpid(),
        "telemetry.sdk.language": "python",
        "telemetry.sdk.name": "opentelemetry",
        "telemetry.sdk.version": sdk_version,
        **(attributes or {}),
    }
    quiet_loggers()
    with captured() as records:
        from_environ = OTELResourceDetector().detect()
    if records:
        _warn("OTEL_RESOURCE_ATTRIBUTES holds an entry that is not name=value and is left out")
    identity: dict[str, AttributeValue] = {
        "service.instance.id": f"{run_id}/{attempt}/{rank}",
        "costlens.run.id": run_id,
        "costlens.attempt": attempt,
        "costlens.rank": rank,
    }
    return Resource(known).merge(from_environ).merge(Resource(identity))


def _build_http(settings: SignalSettings) -> SignalExporter:
    from opentelemetry.exporter.otlp.common import http as otlp_http
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    from costlens.export.otel_session import WatchedSession

    quiet_loggers()
    _own_jitter(otlp_http)
    exporter_of = {
        "traces": OTLPSpanExporter,
        "metrics": OTLPMetricExporter,
        "logs": OTLPLogExporter,
    }
    # A session of ours would displace the one of a configured credential provider.
    session = None if _has_credential_provider("HTTP", settings.signal) else WatchedSession()
    exporter = exporter_of[settings.signal](
        endpoint=settings.endpoint,
        headers=dict(settings.headers),
        timeout=settings.timeout_s,
        compression=Compression(settings.compression),
        session=session,
    )
    return SignalExporter(settings, exporter, session)


def _build_grpc(settings: SignalSettings) -> SignalExporter:
    with _without_fork_handlers():
        return _build_grpc_exporter(settings)


@contextmanager
def _without_fork_handlers() -> Iterator[None]:
    """Let gRPC start without its handlers for forks, unless the user has decided about them.

    With them, each fork under a running export (every loader worker) may break the connection of
    the parent, or end the child in an abort: of 12 jobs with 60 forks each, none was spared.
    Without them a child that does not speak gRPC is safe, and ours never does.
    """
    if _FORK_SUPPORT in os.environ or "grpc" in sys.modules:
        yield
        return
    os.environ[_FORK_SUPPORT] = "0"
    try:
        yield
    finally:
        del os.environ[_FORK_SUPPORT]


def _build_grpc_exporter(settings: SignalSettings) -> SignalExporter:
    from grpc import Compression  # type: ignore[import-untyped]
    from opentelemetry.exporter.otlp.proto.grpc import exporter as otlp_grpc
    from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    quiet_loggers()
    _grpc_pids.add(os.getpid())
    _own_jitter(otlp_grpc)
    exporter_of = {
        "traces": OTLPSpanExporter,
        "metrics": OTLPMetricExporter,
        "logs": OTLPLogExporter,
    }
    compression = {"gzip": Compression.Gzip, "deflate": Compression.Deflate}
    exporter = exporter_of[settings.signal](
        endpoint=settings.endpoint,
        insecure=settings.insecure,
        # "," is a list of no headers; an empty one would make the exporter read the variable again.
        headers=dict(settings.headers) or ",",
        timeout=settings.timeout_s,
        # Always given: the exporter refuses the specification's value "none".
        compression=compression.get(settings.compression, Compression.NoCompression),
    )
    return SignalExporter(settings, exporter, None)


def _own_jitter(module: ModuleType) -> None:
    """Give an SDK module a random generator of its own for its back-off.

    It draws from the global one with every export, at unpredictable moments: augmentations that the
    user seeded would change.
    """
    if vars(module).get("random") is random:
        vars(module)["random"] = random.Random()


def _has_credential_provider(transport: str, signal: Signal) -> bool:
    prefix = f"OTEL_PYTHON_EXPORTER_OTLP_{transport}_"
    names = (prefix + "CREDENTIAL_PROVIDER", f"{prefix}{signal.upper()}_CREDENTIAL_PROVIDER")
    return any(os.environ.get(name) for name in names)


def _grpc_outcome(records: Iterable[logging.LogRecord]) -> ExportResult:
    """Return how a gRPC export ended; the SDK tells the status to its log only.

    The status is an enumeration, safe to show; the details are the server's text, looked at but
    never repeated.
    """
    error_type, is_retryable = "failure", False
    for record in records:
        arguments = record.args if isinstance(record.args, tuple) else ()
        for argument in arguments:
            if isinstance(argument, enum.Enum):
                error_type = f"grpc_{argument.name}"
                is_retryable = argument.name in _GRPC_RETRYABLE
        if any(isinstance(a, str) and "handshake failed" in a.lower() for a in arguments):
            error_type = "grpc_tls_handshake"
    return ExportResult(ok=False, error_type=error_type, is_retryable=is_retryable)


def _warn(problem: str) -> None:
    log.warning("costlens.export.settings", message=problem)


def read_traceparent() -> str | None:
    """Return the W3C trace context that a launcher put into the environment, if any."""
    return os.environ.get("TRACEPARENT") or None
