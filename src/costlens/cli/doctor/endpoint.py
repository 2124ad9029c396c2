"""Would the OTLP endpoint take what a run sends: is it there, of the right kind, and let in?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from costlens.cli.doctor.answer import Answer, ok, problem, skipped, warning
from costlens.cli.doctor.sniff import Kind, sniff
from costlens.config import Config

if TYPE_CHECKING:
    from costlens.export.otel_port import ExportResult
    from costlens.export.otel_settings import Signal, SignalSettings

__all__ = ["EXPORT_TIMEOUT_S", "check_otlp", "check_signal", "list_signals"]

EXPORT_TIMEOUT_S = 2.0
"""Seconds for an empty export; with three looks at the port it stays within a check's limit."""

_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
# Something is there and takes requests, only not this empty one, or not now.
_MILD = frozenset(
    {"http_400", "http_413", "http_415", "http_422", "http_429", "http_503"}
    | {"grpc_INVALID_ARGUMENT", "grpc_RESOURCE_EXHAUSTED"}
)
_OTHER_PORT = {4317: 4318, 4318: 4317}


def list_signals() -> list[Signal]:
    """Return the signals that a run here would send."""
    from costlens.export.otel_check import look_up_settings

    return [*look_up_settings().signals]


def check_otlp(config: Config) -> Iterator[Answer]:
    """Yield whether anything is sent at all, and what is wrong with the variables."""
    from costlens.export.otel_check import look_up_settings

    settings = look_up_settings()
    for told in settings.problems:
        yield problem(told, "docs: https://opentelemetry.io/docs/specs/otel/protocol/exporter/")
    if settings.is_disabled:
        yield skipped("OTEL_SDK_DISABLED switches telemetry off", "unset OTEL_SDK_DISABLED")
    elif not settings.signals:
        kept = "no telemetry is kept" if config.otlp_file is False else "it stays in files"
        yield skipped(
            f"nothing is sent over OTLP: {kept}",
            f"set {_ENDPOINT}=http://collector:4318 to see a run while it goes on",
        )
    elif not settings.problems:
        yield ok(f"{', '.join(settings.signals)} are sent")


def check_signal(signal: Signal) -> Iterator[Answer]:
    """Yield whether the endpoint of a signal takes an empty export, else what stands there."""
    from costlens.export.otel_check import ask_endpoint, look_up_settings

    settings = look_up_settings().signals.get(signal)
    if settings is None:
        yield skipped("it is not sent")
        return
    if not settings.is_usable:
        yield skipped(f"{settings.endpoint_variable} names no endpoint: see otlp")
        return
    result = ask_endpoint(settings, EXPORT_TIMEOUT_S).result
    facts = {"endpoint": settings.target, "protocol": settings.protocol}
    if result.ok:
        yield ok(f"{settings.target} takes it over {settings.protocol}", facts)
    elif result.error_type in _MILD:
        yield warning(
            f"{settings.target} is there and refuses an empty export: {result.error_type}",
            "try again while a run sends; its record counts what was refused",
            {**facts, "error_type": result.error_type},
        )
    else:
        yield _explain(settings, result)


def _explain(settings: SignalSettings, result: ExportResult) -> Answer:
    from costlens.export.otel_check import is_plaintext, split_target

    facts = {
        "endpoint": settings.target,
        "protocol": settings.protocol,
        "error_type": result.error_type,
    }
    if result.error_type.startswith("http_"):
        what, _, fix = (result.hint or "").partition("; ")
        return problem(f"{what} ({result.error_type})", fix or None, facts)
    host, port = split_target(settings)
    kind = sniff(host, port)
    told = _wrong_kind(settings, kind, is_plaintext=is_plaintext(settings))
    told = told or _not_there(settings, kind, host, port)
    if told is None:
        what, _, fix = (result.hint or settings.target).partition("; ")
        told = (f"{what} ({result.error_type})", fix or None)
    return problem(*told, {**facts, "found": kind})


def _wrong_kind(
    settings: SignalSettings, kind: Kind, *, is_plaintext: bool
) -> tuple[str, str | None] | None:
    target, speaks_grpc = settings.target, settings.protocol == "grpc"
    variable = settings.endpoint_variable
    if kind == "tls" and is_plaintext:
        return f"{target} wants TLS and plaintext is spoken", f"write https:// in {variable}"
    if kind in {"http", "grpc"} and not is_plaintext:
        fix = f"write http:// in {variable}"
        return (
            f"{target} is plaintext and TLS is spoken",
            f"{fix}, or set OTEL_EXPORTER_OTLP_INSECURE=true" if speaks_grpc else fix,
        )
    if kind == "grpc" and not speaks_grpc:
        return (
            f"{target} speaks gRPC and HTTP is spoken to it",
            f"set {_speak('grpc', settings)}, or name the port for HTTP, usually 4318",
        )
    if kind == "http" and speaks_grpc:
        return (
            f"{target} speaks HTTP and gRPC is spoken to it",
            f"set {_speak('http/protobuf', settings)}, or name the port for gRPC, usually 4317",
        )
    return None


def _not_there(
    settings: SignalSettings, kind: Kind, host: str, port: int
) -> tuple[str, str | None] | None:
    target, variable = settings.target, settings.endpoint_variable
    if kind == "no_host":
        return f"there is no host of the name {host}", f"mend {variable}, or the name server"
    if kind == "unreachable":
        return f"{target} cannot be reached", "check address, firewall and proxy"
    if kind == "silent":
        return f"{target} accepts connections and says nothing", "look at the collector there"
    if kind != "refused":
        return None
    other = _OTHER_PORT.get(port)
    there = sniff(host, other) if other is not None else "refused"
    if there in {"http", "grpc"}:
        return (
            f"nothing listens at {target}, and {there} does at port {other}",
            f"name port {other} in {variable}, and set {_speak(there, settings)}",
        )
    return f"nothing listens at {target}", f"start the collector there, or mend {variable}"


def _speak(kind: str, settings: SignalSettings) -> str:
    """Return the variable, with the value, that makes a run speak gRPC or HTTP."""
    variable, is_grpc = settings.protocol_variable, kind == "grpc"
    if variable.endswith("_EXPORTER"):
        return f"{variable}={'otlp_proto_grpc' if is_grpc else 'otlp_proto_http'}"
    return f"{variable}={'grpc' if is_grpc else 'http/protobuf'}"
