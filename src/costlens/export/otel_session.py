"""The HTTP session under the SDK's OTLP exporters: notes how a request ended, in safe words.

Imported by ``otel_endpoint`` when exporters are built, because ``requests`` takes long to import.
"""

from __future__ import annotations

import netrc  # noqa: F401 - requests imports it with the first request: see `storage.Store.load`
from typing import Any

import requests
from requests.auth import AuthBase

from costlens.export.otel_port import ExportResult
from costlens.export.otel_settings import is_sendable_header

__all__ = ["WatchedSession"]

_NOTHING_SENT = ExportResult(ok=False, error_type="failure")
_RETRYABLE_STATUS = frozenset({429, 502, 503, 504})


class _KeepHeaders(AuthBase):
    """Leaves a request as it is: requests would put ``.netrc`` in place of the user's header."""

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        return request


class WatchedSession(requests.Session):
    """A session that remembers the outcome of its last request; one thread at a time.

    Attributes:
        outcome: How the last request ended.
        server_date: The Date header of the last answer that had one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.outcome = _NOTHING_SENT
        self.server_date: str | None = None

    def forget(self) -> None:
        """Go back to "nothing sent", before an export that may fail before its request."""
        self.outcome = _NOTHING_SENT

    def request(self, *args: Any, **kwargs: Any) -> requests.Response:
        """Return the response; headers that cannot be sent (control characters) are left out."""
        headers = {k: v for k, v in kwargs["headers"].items() if is_sendable_header(k.lower(), v)}
        kwargs["headers"] = headers
        if any(name.lower() == "authorization" for name in headers):
            kwargs["auth"] = _KeepHeaders()
        if self.verify is not True:
            # Said again for this request, because requests prefers REQUESTS_CA_BUNDLE to a session.
            kwargs["verify"] = self.verify
        try:
            response = super().request(*args, **kwargs)
        except (OSError, ValueError) as error:  # all of requests' own errors are OSErrors
            is_network = isinstance(error, (requests.ConnectionError, requests.Timeout))
            self.outcome = ExportResult(
                ok=False,
                error_type=type(error).__name__,
                is_retryable=is_network and not isinstance(error, requests.exceptions.SSLError),
            )
            raise
        self.server_date = response.headers.get("date")
        status = response.status_code
        # The SDK takes a redirect, which it does not follow, for success.
        is_ok = 200 <= status < 300
        self.outcome = ExportResult(
            ok=is_ok,
            error_type="" if is_ok else f"http_{status}",
            is_retryable=status in _RETRYABLE_STATUS,
        )
        return response
