"""The sender of a replay over OTLP/HTTP, and the choice between it and the one over gRPC.

``otlp_replay`` decides what is sent and when. The ``OTEL_EXPORTER_OTLP_*`` variables for headers,
timeout, compression and certificates apply as to a run's own exports; those for endpoint and
protocol do not.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from google.protobuf.message import DecodeError  # type: ignore[import-untyped] # has no types
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped] # the same

from costlens.errors import ConfigError
from costlens.export.endpoint_url import find_fault, show_endpoint
from costlens.export.otel_lines import decode_line
from costlens.export.otel_replies import accept, safe_text
from costlens.export.otel_session import WatchedSession
from costlens.export.otel_settings import SIGNALS, Protocol, SignalSettings, parse_settings
from costlens.export.otlp_json import read_facts
from costlens.export.otlp_replay import Reply, ReplyState, Sender

__all__ = ["HttpSender", "make_sender"]

_COMPRESS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress}
_DENIED = frozenset({401, 403, 404, 405, 501})
_HINTS = {
    401: "; OTEL_EXPORTER_OTLP_HEADERS may hold credentials",
    403: "; OTEL_EXPORTER_OTLP_HEADERS may hold credentials",
    404: "; the endpoint gets /v1/<signal> appended",
}


def make_sender(url: str, protocol: Protocol) -> Sender:
    """Return a connection to an endpoint; nothing is sent yet.

    Args:
        url: Base address; for HTTP ``/v1/<signal>`` is appended.
        protocol: http/protobuf or grpc.

    Raises:
        ConfigError: If the address is not one, or a certificate cannot be read.
    """
    fault = find_fault(url, needs_scheme=protocol == "http/protobuf")
    if fault is not None:
        raise ConfigError(
            f"--endpoint must be a URL such as http://collector:4318, got {show_endpoint(url)!r}: "
            f"{fault}; for a gRPC collector add --protocol grpc"
        )
    asked = {f"OTEL_{signal.upper()}_EXPORTER": "otlp" for signal in SIGNALS}
    asked |= {f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL": protocol for signal in SIGNALS}
    environ = {**os.environ, **asked, "OTEL_SDK_DISABLED": ""}
    signals = {str(name): each for name, each in parse_settings(environ, url).signals.items()}
    if protocol == "grpc":
        from costlens.export.otel_replay_grpc import GrpcSender

        return GrpcSender(signals, environ)
    return HttpSender(signals, environ)


def name_certificates(environ: Mapping[str, str], signal: str) -> tuple[str | None, ...]:
    """Return the files of authority, client certificate and client key, where they are named."""
    names = ("CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY")
    prefixes = (f"OTEL_EXPORTER_OTLP_{signal.upper()}_", "OTEL_EXPORTER_OTLP_")
    return tuple(
        next((value for p in prefixes if (value := environ.get(p + name))), None) for name in names
    )


class HttpSender:
    """Sends lines over OTLP/HTTP with protobuf bodies.

    Args:
        signals: Settings by signal.
        environ: Where certificates are named.
    """

    def __init__(self, signals: Mapping[str, SignalSettings], environ: Mapping[str, str]) -> None:
        self._signals = signals
        self._environ = environ
        self._session = WatchedSession()

    def send(self, signal: str, line: bytes) -> Reply:
        """Send one line and return what became of it; blocks for the export timeout at most."""
        try:
            body, num_items = decode_line(signal, line).SerializeToString(), read_facts(line)[0]
        except ValueError as error:
            return Reply("corrupt", str(error))
        return replace(self._post(self._signals[signal], body), num_items=num_items)

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def _post(self, settings: SignalSettings, body: bytes) -> Reply:
        headers = {"content-type": "application/x-protobuf", **settings.headers}
        if settings.compression != "none":
            body = _COMPRESS[settings.compression](body)
            headers["content-encoding"] = settings.compression
        authority, chain, key = name_certificates(self._environ, settings.signal)
        try:
            response = self._session.post(
                settings.endpoint or "",
                data=body,
                headers=headers,
                timeout=settings.timeout_s,
                verify=authority or True,
                cert=(chain, key) if chain and key else chain,
                allow_redirects=False,
            )
        except (OSError, ValueError):  # all of requests' own errors
            outcome = self._session.outcome
            state: ReplyState = "unavailable" if outcome.is_retryable else "denied"
            return Reply(state, f"{settings.target}: {outcome.error_type}")
        if self._session.outcome.ok:
            return accept(settings, response.content)
        reason = self._explain(settings, response.status_code, response.content)
        if self._session.outcome.is_retryable:
            asked_s = _parse_seconds(response.headers.get("retry-after"))
            return Reply("unavailable", reason, retry_after_s=asked_s)
        is_denied = response.status_code in _DENIED or 300 <= response.status_code < 400
        return Reply("denied" if is_denied else "refused", reason)

    def _explain(self, settings: SignalSettings, status: int, body: bytes) -> str:
        """Return why a request failed: OTLP's own answer is a protobuf Status, others send text."""
        text = ""
        with suppress(DecodeError):
            text = str(Status.FromString(body).message)
        text = text or body.decode("utf-8", "replace")
        return safe_text(f"HTTP {status} {text}", settings) + _HINTS.get(status, "")


def _parse_seconds(text: str | None) -> float | None:
    try:
        return max(0.0, float(text or ""))
    except ValueError:  # not given, or a date
        return None
