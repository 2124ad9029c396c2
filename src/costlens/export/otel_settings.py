"""What the ``OTEL_*`` variables ask for: which signals go out over OTLP, to where and how.

Pure: a mapping in, settings and problems out. ``otel_endpoint`` hands in the environment and builds
the SDK's exporters from the result; what the exporters read correctly from the environment
themselves (paths, certificates, proxies) is left to them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, cast
from urllib.parse import unquote, urlsplit

from costlens.export.endpoint_url import find_fault, show_endpoint

__all__ = [
    "DEFAULT_TIMEOUT_S",
    "SIGNALS",
    "ExportSettings",
    "Signal",
    "SignalSettings",
    "is_sendable_header",
    "parse_settings",
]

Signal = Literal["traces", "metrics", "logs"]
Protocol = Literal["http/protobuf", "grpc"]
Compression = Literal["none", "gzip", "deflate"]

SIGNALS: tuple[Signal, ...] = ("traces", "metrics", "logs")

DEFAULT_TIMEOUT_S = 5.0
"""Seconds one export may take with its retries; OpenTelemetry's 10 s are long for a run's end."""

_MIN_TIMEOUT_MS = 100.0
_OTLP = "OTEL_EXPORTER_OTLP_"
_EXPORTER_PROTOCOLS: dict[str, Protocol | None] = {
    "otlp": None,
    "otlp_proto_http": "http/protobuf",
    "otlp_proto_grpc": "grpc",
}
_DEFAULT_ENDPOINTS: dict[Protocol, str] = {
    "http/protobuf": "http://localhost:4318",
    "grpc": "http://localhost:4317",
}
_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9a-z]+")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]*")


@dataclass(frozen=True, slots=True)
class SignalSettings:
    """How one signal is exported.

    Args:
        signal: traces, metrics or logs.
        protocol: http/protobuf or grpc.
        endpoint: Set only if it was given in code; None leaves the variables to the exporter.
        target: ``host:port`` for people; never holds credentials.
        insecure: gRPC only: True plaintext, False TLS, None as ``OTEL_EXPORTER_OTLP_*INSECURE``
            says (TLS where that is unset).
        timeout_s: Seconds one export may take, retries included, > 0.
        compression: none, gzip or deflate.
        headers: Names in lower case, decoded values; may hold secrets, so never printed.
        endpoint_variable: The variable that the endpoint is from, or would be.
        protocol_variable: The variable that the protocol is from, or would be.
        is_usable: Whether the endpoint is one; where not, ``problems`` says why.
    """

    signal: Signal
    protocol: Protocol
    endpoint: str | None
    target: str
    insecure: bool | None
    timeout_s: float
    compression: Compression
    headers: Mapping[str, str] = field(repr=False)
    endpoint_variable: str = f"{_OTLP}ENDPOINT"
    protocol_variable: str = f"{_OTLP}PROTOCOL"
    is_usable: bool = True


@dataclass(frozen=True, slots=True)
class ExportSettings:
    """The signals to export, and what is wrong with the variables.

    Args:
        signals: One entry per signal that is switched on.
        problems: One sentence each; names the variable and what is allowed, never a header's value.
        is_disabled: Whether ``OTEL_SDK_DISABLED`` switches all telemetry off.
    """

    signals: Mapping[Signal, SignalSettings]
    problems: tuple[str, ...] = ()
    is_disabled: bool = False


def is_sendable_header(name: str, value: str) -> bool:
    """Return whether HTTP and gRPC can send a header: lower-case token, printable ASCII value."""
    return bool(_HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(value))


def parse_settings(environ: Mapping[str, str], base_url: str | None = None) -> ExportSettings:
    """Return what to export, as the OpenTelemetry specification reads the variables.

    A signal is on if an OTLP endpoint is set for it (or for all), or ``OTEL_<SIGNAL>_EXPORTER``
    names otlp. ``none``, another exporter's name and ``OTEL_SDK_DISABLED=true`` switch it off. Logs
    need ``OTEL_LOGS_EXPORTER=otlp``.

    Args:
        environ: The environment; an empty value counts as unset.
        base_url: A base given in code; wins over the variables and follows the same path rule.
    """
    reader = _Reader(environ, base_url.strip() if base_url else None)
    if reader.get("OTEL_SDK_DISABLED").lower() == "true":
        return ExportSettings({}, is_disabled=True)
    signals = {signal: reader.signal(signal) for signal in SIGNALS if reader.is_on(signal)}
    return ExportSettings(signals, tuple(dict.fromkeys(reader.problems)))


class _Reader:
    """Reads the variables of one signal after the other and collects what is wrong."""

    def __init__(self, environ: Mapping[str, str], base_url: str | None) -> None:
        self._environ = environ
        self._base_url = base_url
        self.problems: list[str] = []

    def get(self, variable: str) -> str:
        return self._environ.get(variable, "").strip()

    def is_on(self, signal: Signal) -> bool:
        named = self._exporters(signal)
        if named:
            return bool(named & _EXPORTER_PROTOCOLS.keys())
        return signal != "logs" and bool(self._base_url or self._otlp(signal, "ENDPOINT")[1])

    def signal(self, signal: Signal) -> SignalSettings:
        protocol_variable, protocol = self._protocol(signal)
        variable, from_environ = self._otlp(signal, "ENDPOINT")
        url = self._base_url or from_environ or _DEFAULT_ENDPOINTS[protocol]
        try:
            scheme = urlsplit(url).scheme.lower()
        except ValueError:  # such as http://[::1
            scheme = ""
        fault = find_fault(url, needs_scheme=protocol == "http/protobuf")
        if fault is not None:
            self.problems.append(_tell_unusable(variable, url, fault, protocol))
        endpoint = None
        if self._base_url:
            path = f"/v1/{signal}" if protocol == "http/protobuf" else ""
            endpoint = self._base_url.rstrip("/") + path
        return SignalSettings(
            signal=signal,
            protocol=protocol,
            endpoint=endpoint,
            target=_target(url),
            # A scheme decides, whatever INSECURE says; the SDK lets INSECURE=false beat http://.
            insecure={"http": True, "https": False}.get(scheme),
            timeout_s=self._timeout_s(signal),
            compression=self._compression(signal),
            headers=self._headers(signal),
            endpoint_variable=variable,
            protocol_variable=protocol_variable,
            is_usable=fault is None,
        )

    def _otlp(self, signal: Signal, name: str) -> tuple[str, str]:
        """Return the variable that counts and its value: the signal's own before the general."""
        own, general = f"{_OTLP}{signal.upper()}_{name}", f"{_OTLP}{name}"
        return (own, self.get(own)) if self.get(own) else (general, self.get(general))

    def _exporters(self, signal: Signal) -> set[str]:
        named = self.get(f"OTEL_{signal.upper()}_EXPORTER").lower().split(",")
        return {name.strip() for name in named} - {""}

    def _protocol(self, signal: Signal) -> tuple[str, Protocol]:
        """Return the variable that counts and the protocol."""
        for name in sorted(self._exporters(signal)):
            if protocol := _EXPORTER_PROTOCOLS.get(name):
                return f"OTEL_{signal.upper()}_EXPORTER", protocol
        variable, value = self._otlp(signal, "PROTOCOL")
        if value.lower() in _DEFAULT_ENDPOINTS:
            return variable, cast("Protocol", value.lower())
        if value:
            self.problems.append(
                f"{variable} must be http/protobuf or grpc, got {value!r}; http/protobuf is used"
            )
        return variable, "http/protobuf"

    def _compression(self, signal: Signal) -> Compression:
        variable, value = self._otlp(signal, "COMPRESSION")
        if value.lower() in {"none", "gzip", "deflate"}:
            return cast("Compression", value.lower())
        if value:
            self.problems.append(
                f"{variable} must be none, gzip or deflate, got {value!r}; none is used"
            )
        return "none"

    def _timeout_s(self, signal: Signal) -> float:
        """Return the timeout; the specification's unit is ms, the Python SDK's is s.

        Nobody means less than 100 ms or more than 100 s, so the size tells the unit.
        """
        variable, value = self._otlp(signal, "TIMEOUT")
        if not value:
            return DEFAULT_TIMEOUT_S
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not (math.isfinite(number) and number > 0):
            self.problems.append(
                f"{variable} must be a number of milliseconds > 0, got {value!r}; "
                f"{DEFAULT_TIMEOUT_S:g} s is used"
            )
            return DEFAULT_TIMEOUT_S
        return number / 1000 if number >= _MIN_TIMEOUT_MS else number

    def _headers(self, signal: Signal) -> dict[str, str]:
        variable, text = self._otlp(signal, "HEADERS")
        headers = {}
        for position, entry in enumerate(text.split(","), start=1):
            if not entry.strip():
                continue
            name, equals, value = (unquote(part).strip() for part in entry.partition("="))
            if equals and is_sendable_header(name.lower(), value):
                headers[name.lower()] = value
            else:
                self.problems.append(
                    f"{variable}: entry {position} is not a usable name=value header and is left "
                    "out (not shown, it may be a secret); write space, comma, semicolon and "
                    "percent as %20, %2C, %3B and %25"
                )
        return headers


def _tell_unusable(variable: str, url: str, fault: str, protocol: Protocol) -> str:
    """Return what is wrong with an endpoint, what is allowed, and what would mend it."""
    shown, example = show_endpoint(url), _DEFAULT_ENDPOINTS[protocol].replace("localhost", "host")
    told = f"{variable} must be a URL such as {example}, got {shown!r}: {fault}"
    if protocol == "grpc" or find_fault(f"http://{url}", needs_scheme=True) is not None:
        return f"{told}; nothing can be sent until it is mended"
    return f"{told}; write http://{shown}, or for a gRPC collector set {_OTLP}PROTOCOL=grpc"


def _target(url: str) -> str:
    """Return ``host:port`` of a URL or of a bare ``host:port``, without credentials."""
    try:
        place = urlsplit(url).netloc or url.partition("/")[0]
    except ValueError:
        return "an address that is no URL"
    return place.rpartition("@")[2]
