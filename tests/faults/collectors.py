"""Collectors that misbehave, each on a port of its own."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler

from tests.http_servers import LoopbackServer


@contextmanager
def refusing() -> Iterator[int]:
    """Yield a port that nobody listens on, held so that nobody else can."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


@contextmanager
def silent() -> Iterator[int]:
    """Yield a port that takes connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield listener.getsockname()[1]


@contextmanager
def answering(status: int) -> Iterator[int]:
    """Yield a port that answers every request with one HTTP status."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    server = LoopbackServer(("127.0.0.1", 0), Handler)
    server.block_on_close = False
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Gateway:
    """A port in front of another one, which can be closed and opened again."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._server: socketserver.ThreadingTCPServer | None = None
        self._thread: threading.Thread | None = None
        self._pairs: list[socket.socket] = []
        # Held all the time, so that nobody else can take it while it is closed.
        self._holder = socket.socket()
        self._holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._holder.bind(("127.0.0.1", 0))
        self.port = self._holder.getsockname()[1]

    def open(self) -> None:
        """Let connections through from now on."""
        gateway = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                gateway._carry(self.request)

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_port = True
            daemon_threads = True
            block_on_close = False

        self._server = Server(("127.0.0.1", self.port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        """Refuse connections and break those that are open."""
        if self._server is None or self._thread is None:
            return
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._server = None
        while self._pairs:
            with suppress(OSError):
                self._pairs.pop().shutdown(socket.SHUT_RDWR)

    def _carry(self, client: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", self._target_port)) as target:
            self._pairs += [client, target]
            back = threading.Thread(target=_pump, args=(target, client), daemon=True)
            back.start()
            _pump(client, target)
            back.join()

    def __enter__(self) -> Gateway:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._holder.close()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    """Carry bytes one way until an end is gone."""
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_RDWR)
