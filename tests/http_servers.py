"""The HTTP server of tests that answer on loopback."""

from __future__ import annotations

import sys
from http.server import ThreadingHTTPServer
from typing import Any

__all__ = ["LoopbackServer"]


class LoopbackServer(ThreadingHTTPServer):
    """Says nothing of clients that hang up, which would stand in another test's stderr."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Tell what is no broken connection."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)
