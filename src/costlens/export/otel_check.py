"""Asks an OTLP endpoint whether it would take what a run sends: an empty export, and what answers.

For whoever asks before a run (``costlens doctor``). The same exporters and variables are used as
by a run; an empty request leaves no data behind.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from costlens.export.otel_endpoint import build_exporters
from costlens.export.otel_port import ExportResult
from costlens.export.otel_settings import (
    ExportSettings,
    Signal,
    SignalSettings,
    parse_settings,
)

__all__ = ["EndpointAnswer", "ask_endpoint", "is_plaintext", "look_up_settings", "split_target"]

_PORTS = {"grpc": 4317, "http/protobuf": 80}
_TLS_PORT = 443


@dataclass(frozen=True, slots=True)
class EndpointAnswer:
    """What an endpoint answered.

    Args:
        result: How the export ended.
        server_date: The Date header of an HTTP answer; None where there was none.
    """

    result: ExportResult
    server_date: str | None


def look_up_settings() -> ExportSettings:
    """Return what the environment asks to export, and what is wrong with it."""
    return parse_settings(os.environ)


def ask_endpoint(settings: SignalSettings, timeout_s: float) -> EndpointAnswer:
    """Send nothing to an endpoint, and return what it says; blocks up to the timeout.

    Args:
        settings: The signal's.
        timeout_s: Seconds, > 0; the settings' own where that is shorter.
    """
    asked = replace(settings, timeout_s=min(timeout_s, settings.timeout_s))
    exporter = build_exporters(ExportSettings({settings.signal: asked})).get(settings.signal)
    if exporter is None:
        return EndpointAnswer(ExportResult(ok=False, error_type="exporter_not_built"), None)
    try:
        result = exporter.export(_nothing(settings.signal))
    finally:
        exporter.shutdown()
    return EndpointAnswer(result, exporter.server_date)


def is_plaintext(settings: SignalSettings) -> bool:
    """Return whether the endpoint is spoken to without TLS."""
    if settings.insecure is not None or settings.protocol == "http/protobuf":
        return bool(settings.insecure)
    own = f"OTEL_EXPORTER_OTLP_{settings.signal.upper()}_INSECURE"
    text = os.environ.get(own) or os.environ.get("OTEL_EXPORTER_OTLP_INSECURE") or ""
    return text.strip().lower() == "true"


def split_target(settings: SignalSettings) -> tuple[str, int]:
    """Return host and port of an endpoint, with the port that is meant where none is written."""
    host, colon, port = settings.target.rpartition(":")
    if colon and port.isdecimal() and not host.endswith(":"):
        return host.strip("[]"), int(port)
    default = _PORTS[settings.protocol]
    if settings.protocol == "http/protobuf" and not is_plaintext(settings):
        default = _TLS_PORT
    return settings.target.strip("[]"), default


def _nothing(signal: Signal) -> object:
    if signal != "metrics":
        return []
    from opentelemetry.sdk.metrics.export import MetricsData

    return MetricsData(resource_metrics=[])
