"""A local server that speaks the metadata endpoints of three clouds, as strictly as they do."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.http_servers import LoopbackServer

__all__ = ["MetadataServer"]


class MetadataServer(LoopbackServer):
    """Answers on a free port of this machine; closes as a context manager.

    Attributes:
        action: What EC2 says of the instance, None while nothing is planned.
        preempted: Set once Compute Engine preempts the instance.
        events: Azure's scheduled events.
        token: The token that EC2 takes; another one makes the old one invalid.
        num_requests: Requests so far.
        is_broken: Whether every request is answered with an error.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.action: dict[str, Any] | None = None
        self.preempted = threading.Event()
        self.events: list[dict[str, Any]] = []
        self.token = "token-1"
        self.num_requests = 0
        self.is_broken = False
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def url(self) -> str:
        """Return where it answers."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def __exit__(self, *_: object) -> None:
        self.preempted.set()  # lets whoever waits go
        self.shutdown()
        self.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: MetadataServer

    def do_PUT(self) -> None:
        is_token = self.path == "/latest/api/token"
        if is_token and self.headers.get("X-aws-ec2-metadata-token-ttl-seconds"):
            self._answer(200, self.server.token)
        else:
            self._answer(400, "")

    def do_GET(self) -> None:
        path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        if path == "/latest/meta-data/spot/instance-action":
            self._answer_aws()
        elif path == "/computeMetadata/v1/instance/preempted":
            self._answer_gcp(query)
        elif path.startswith("/metadata/"):
            self._answer_azure(path, query)
        else:
            self._answer(404, "")

    def _answer_aws(self) -> None:
        if self.headers.get("X-aws-ec2-metadata-token") != self.server.token:
            self._answer(401, "")
        elif self.server.action is None:
            self._answer(404, "")
        else:
            self._answer(200, json.dumps(self.server.action))

    def _answer_gcp(self, query: dict[str, list[str]]) -> None:
        if self.headers.get("Metadata-Flavor") != "Google":
            self._answer(403, "")
            return
        if query.get("wait_for_change") == ["true"] and query.get("last_etag") == ["calm"]:
            self.server.preempted.wait(float(query["timeout_sec"][0]))
        is_preempted = self.server.preempted.is_set()
        self._answer(
            200, "TRUE" if is_preempted else "FALSE", ETag="storm" if is_preempted else "calm"
        )

    def _answer_azure(self, path: str, query: dict[str, list[str]]) -> None:
        if self.headers.get("Metadata") != "true" or "api-version" not in query:
            self._answer(400, "")
        elif path == "/metadata/instance/compute/name":
            self._answer(200, "node-7")
        elif path == "/metadata/scheduledevents":
            self._answer(200, json.dumps({"DocumentIncarnation": 1, "Events": self.server.events}))
        else:
            self._answer(404, "")

    def _answer(self, code: int, text: str, **headers: str) -> None:
        self.server.num_requests += 1
        self.send_response(500 if self.server.is_broken else code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""
