"""What listens at an address: HTTP, gRPC in plaintext, TLS, or nothing. A few bytes each way."""

from __future__ import annotations

import socket
import ssl
from contextlib import closing
from typing import Literal

__all__ = ["Kind", "sniff"]

Kind = Literal["http", "grpc", "tls", "no_host", "refused", "unreachable", "silent", "other"]

TIMEOUT_S = 1.0
_MAX_BYTES = 512
# RFC 9113, 3.4: how a connection of HTTP/2 begins, with an empty frame of settings.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_SETTINGS_FRAME = 4
_TLS_ALERT = 0x15
_FRAME_HEADER_BYTES = 9
# How servers of Go and nginx answer plaintext on a port for TLS.
_WANTS_TLS = (b"HTTPS server", b"HTTPS port")


def sniff(host: str, port: int, timeout_s: float = TIMEOUT_S) -> Kind:
    """Return what listens at an address; blocks for three timeouts at most.

    Args:
        host: Name or address.
        port: Its port.
        timeout_s: Seconds that each of three connections may take, > 0.
    """
    try:
        return _look(host, port, timeout_s)
    except socket.gaierror:
        return "no_host"
    except ConnectionRefusedError:
        return "refused"
    except OSError:
        return "unreachable"


def _look(host: str, port: int, timeout_s: float) -> Kind:
    request = f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    answer = _say(host, port, request.encode("ascii", "replace"), timeout_s)
    if answer is None:
        return "silent"
    kind = _recognize(answer)
    if kind is None:
        # A gRPC server that waits for its client to begin has hung up on the request.
        kind = _recognize(_say(host, port, _PREFACE, timeout_s))
    if kind is not None:
        return kind
    return "tls" if _shakes_hands(host, port, timeout_s) else "other"


def _say(host: str, port: int, data: bytes, timeout_s: float) -> bytes | None:
    """Return the beginning of an answer: empty where the server hangs up, None where it waits.

    Raises:
        OSError: If there is no connection.
    """
    with closing(socket.create_connection((host, port), timeout_s)) as connection:
        try:
            connection.sendall(data)
            return connection.recv(_MAX_BYTES)
        except TimeoutError:
            return None
        except OSError:  # such as a reset by who does not like the first bytes
            return b""


def _recognize(answer: bytes | None) -> Kind | None:
    if not answer:
        return None
    if answer.startswith(b"HTTP/1"):
        return "tls" if any(told in answer for told in _WANTS_TLS) else "http"
    if answer[0] == _TLS_ALERT:
        return "tls"
    is_frame = len(answer) >= _FRAME_HEADER_BYTES and answer[3] == _SETTINGS_FRAME
    return "grpc" if is_frame else None


def _shakes_hands(host: str, port: int, timeout_s: float) -> bool:
    """Return whether a TLS handshake succeeds; nothing secret is said, so nobody is verified."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            closing(socket.create_connection((host, port), timeout_s)) as connection,
            context.wrap_socket(connection, server_hostname=host),
        ):
            return True
    except ssl.SSLCertVerificationError:
        return True
    except (OSError, ValueError):
        return False
