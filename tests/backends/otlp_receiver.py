"""A real OTLP receiver in a process of its own, on loopback; started by `tests/fixtures_otlp.py`.

It speaks OTLP/HTTP (protobuf, gzip, deflate), OTLP over TLS and OTLP/gRPC, keeps every request it
gets, and can be told over its control port to be slow, silent, or to refuse. It prints its ports
as one JSON line and ends when the process that started it does.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import ssl
import sys
import threading
import time
import zlib
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

REQUEST_TYPES = {
    "traces": trace_service_pb2.ExportTraceServiceRequest,
    "metrics": metrics_service_pb2.ExportMetricsServiceRequest,
    "logs": logs_service_pb2.ExportLogsServiceRequest,
}
GRPC_METHODS = {
    "/opentelemetry.proto.collector.trace.v1.TraceService/Export": "traces",
    "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export": "metrics",
    "/opentelemetry.proto.collector.logs.v1.LogsService/Export": "logs",
}
# How the OTLP specification pairs the two transports' refusals.
GRPC_CODES = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED"} | {
    404: "UNIMPLEMENTED",
    429: "RESOURCE_EXHAUSTED",
}


@dataclass(frozen=True)
class Fault:
    """What the receiver does instead of answering well; the default is no fault."""

    status: int = 200  # HTTP status, or its gRPC counterpart
    delay_s: float = 0.0  # before any answer
    hang: bool = False  # take the request, never answer, until the next `clear` or `fault`
    echo: str | None = None  # name of a request header to repeat in reason, headers and body
    retry_after_s: float | None = None
    signals: list[str] | None = None  # only these; None is all
    times: int | None = None  # only the next so many requests; None is all


@dataclass
class Store:
    """Everything received, and the fault in force."""

    received: list[dict[str, Any]] = field(default_factory=list)
    fault: Fault = field(default_factory=Fault)
    num_faults_left: float = 0
    released: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def set_fault(self, fault: Fault, *, forget: bool) -> None:
        with self.lock:
            self.fault = fault
            self.num_faults_left = float("inf") if fault.times is None else fault.times
            self.released.set()  # whoever hangs in the old fault gives up
            self.released = threading.Event()
            if forget:
                self.received.clear()

    def admit(self, signal: str | None, **request: Any) -> tuple[Fault, threading.Event]:
        """Keep a request and return the fault that applies to it."""
        with self.lock:
            fault = self.fault
            meant = fault.signals is None or signal in fault.signals
            if not meant or self.num_faults_left <= 0:
                fault = Fault()
            else:
                self.num_faults_left -= 1
            accepted = fault.status < 300 and not fault.hang
            self.received.append(
                {"signal": signal, "accepted": accepted, "at_ns": time.time_ns(), **request}
            )
            return fault, self.released


STORE = Store()


class Handler(BaseHTTPRequestHandler):
    """Common to both HTTP servers: keep-alive, no log, no Nagle delay."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *args: object) -> None:
        """Say nothing: the test reads the requests."""

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def answer(
        self,
        status: int,
        body: bytes = b"",
        kind: str = "application/x-protobuf",
        reason: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        self.send_response(status, reason)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


class OtlpHandler(Handler):
    """OTLP/HTTP on any path."""

    def do_POST(self) -> None:
        raw = self.body()
        encoding = self.headers.get("content-encoding", "")
        body = {"gzip": gzip.decompress, "deflate": zlib.decompress}.get(encoding, bytes)(raw)
        path = self.path.partition("?")[0]
        signal = next((s for s in REQUEST_TYPES if path.endswith(f"/v1/{s}")), None)
        try:
            if signal:
                REQUEST_TYPES[signal].FromString(body)
        except DecodeError:
            self.answer(HTTPStatus.BAD_REQUEST)
            return
        fault, released = STORE.admit(
            signal,
            transport="http" if not isinstance(self.connection, ssl.SSLSocket) else "https",
            path=self.path,
            headers={name.lower(): value for name, value in self.headers.items()},
            body=base64.b64encode(body).decode(),
        )
        if fault.hang:
            released.wait()
            self.close_connection = True
            return
        released.wait(fault.delay_s)
        echoed = self.headers.get(fault.echo, "") if fault.echo else ""
        headers = {"X-Echo": echoed} if echoed else {}
        if fault.retry_after_s is not None:
            headers["Retry-After"] = f"{fault.retry_after_s:g}"
        reason = f"refused {echoed}" if echoed else None
        self.answer(fault.status, echoed.encode(), reason=reason, headers=headers)


class ControlHandler(Handler):
    """What the test side asks: the requests, a fault, a further port."""

    def do_GET(self) -> None:
        with STORE.lock:
            body = json.dumps(STORE.received).encode()
        self.answer(200, body, "application/json")

    def do_POST(self) -> None:
        asked = json.loads(self.body() or b"{}")
        if self.path == "/listen":
            answer = listen(asked["kind"])
        else:
            STORE.set_fault(Fault(**asked), forget=self.path == "/clear")
            answer = {"fault": asdict(STORE.fault)}
        self.answer(200, json.dumps(answer).encode(), "application/json")


class Server(ThreadingHTTPServer):
    """Takes bursts, and says nothing about clients that hang up."""

    request_queue_size = 128
    daemon_threads = True

    def handle_error(self, *args: object) -> None:
        """Ignore broken connections: a client that gives up is what the tests are about."""


def serve_http(handler: type[Handler], context: ssl.SSLContext | None = None) -> int:
    """Return the port of a new HTTP server."""
    server = Server(("127.0.0.1", 0), handler)
    if context is not None:
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def serve_grpc(credentials: Any = None) -> int:
    """Return the port of a new gRPC server, plaintext without credentials."""
    from concurrent.futures import ThreadPoolExecutor

    import grpc

    def answer(method: str, request: Any, context: grpc.ServicerContext) -> bytes:
        headers = {key: str(value) for key, value in context.invocation_metadata()}
        fault, released = STORE.admit(
            GRPC_METHODS[method],
            transport="grpc" if credentials is None else "grpcs",
            path=method,
            headers=headers,
            body=base64.b64encode(request.SerializeToString()).decode(),
        )
        if fault.hang:
            released.wait()
        else:
            released.wait(fault.delay_s)
        if fault.hang or fault.status >= 300:
            code = grpc.StatusCode[GRPC_CODES.get(fault.status, "UNAVAILABLE")]
            echoed = headers.get(fault.echo, "") if fault.echo else ""
            context.set_trailing_metadata((("x-echo", echoed),))
            context.abort(code, f"refused {echoed}")
        return b""

    class Router(grpc.GenericRpcHandler):
        def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
            signal = GRPC_METHODS.get(call.method)
            if signal is None:
                return None
            return grpc.unary_unary_rpc_method_handler(
                lambda request, context: answer(call.method, request, context),
                request_deserializer=REQUEST_TYPES[signal].FromString,
            )

    server = grpc.server(ThreadPoolExecutor(16), handlers=(Router(),))
    if credentials is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    SERVERS.append(server)  # a gRPC server stops when nobody refers to it
    return port


SERVERS: list[Any] = []


def listen(kind: str) -> dict[str, Any]:
    """Return the port of a further transport: grpc, or grpcs and https with a fresh certificate."""
    if kind == "grpc":
        return {"port": serve_grpc()}
    import trustme

    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    if kind == "https":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate.configure_cert(context)
        port = serve_http(OtlpHandler, context)
    else:
        import grpc

        chain = b"".join(pem.bytes() for pem in certificate.cert_chain_pems)
        pair = (certificate.private_key_pem.bytes(), chain)
        port = serve_grpc(grpc.ssl_server_credentials([pair]))
    return {"port": port, "ca": authority.cert_pem.bytes().decode()}


def main() -> None:
    """Serve until the parent is gone."""
    parent = os.getppid()
    ports = {"http": serve_http(OtlpHandler), "control": serve_http(ControlHandler)}
    print(json.dumps(ports), flush=True)
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
