"""What endpoints answer to a replay: the words for people, TLS, headers, partial success."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

from costlens.errors import ConfigError
from costlens.export.otel_lines import encode_line
from costlens.export.otel_replay import make_sender
from costlens.export.otlp_replay import Reply
from tests.backends.otlp_batches import logs, spans
from tests.fixtures_otlp import OtlpReceiver
from tests.http_servers import LoopbackServer

SECRET = "s3cr3t-t0ken"
LINE = encode_line("logs", logs("hello"))
GRPC = "grpc"


def send(
    url: str, protocol: str = "http/protobuf", signal: str = "logs", line: bytes = LINE
) -> Reply:
    """Send one line over a connection of its own."""
    sender = make_sender(url, protocol)  # type: ignore[arg-type]
    try:
        return sender.send(signal, line)
    finally:
        sender.close()


@pytest.fixture(name="answers")
def _answers() -> Iterator[tuple[str, list[tuple[int, bytes]]]]:
    """Return an HTTP endpoint and the list of answers it gives, one a request."""
    answers: list[tuple[int, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            status, body = answers.pop(0)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args: object) -> None:
            """Say nothing."""

    with LoopbackServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", answers
        server.shutdown()
        thread.join()


def test_accepted_lines_are_counted(otlp_receiver: OtlpReceiver) -> None:
    """The reply says how many items arrived, over both protocols."""
    line = encode_line("traces", spans("a", "b", "c"))
    plain_grpc = f"http://127.0.0.1:{otlp_receiver.grpc_port}"
    assert send(otlp_receiver.endpoint, signal="traces", line=line) == Reply(
        "accepted", num_items=3
    )
    assert send(plain_grpc, GRPC, "traces", line) == Reply("accepted", num_items=3)
    assert len(otlp_receiver.spans()) == 6


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (400, "refused"),
        (413, "refused"),
        (500, "refused"),
        (401, "denied"),
        (403, "denied"),
        (404, "denied"),
        (307, "denied"),
        (429, "unavailable"),
        (502, "unavailable"),
        (503, "unavailable"),
        (504, "unavailable"),
    ],
)
def test_statuses_mean_what_the_specification_says(
    otlp_receiver: OtlpReceiver, status: int, state: str
) -> None:
    """Retryable ones are waited out, those about us or the signal deny it, others refuse a line."""
    otlp_receiver.fault(status=status)
    reply = send(otlp_receiver.endpoint)
    assert reply.state == state
    assert f"HTTP {status}" in reply.reason


@pytest.mark.parametrize(
    ("status", "state"), [(400, "refused"), (401, "denied"), (404, "denied"), (503, "unavailable")]
)
def test_grpc_codes_mean_the_same(otlp_receiver: OtlpReceiver, status: int, state: str) -> None:
    """Over gRPC the codes that correspond have the same effect."""
    otlp_receiver.fault(status=status)
    assert send(f"http://127.0.0.1:{otlp_receiver.grpc_port}", GRPC).state == state


def test_the_endpoint_may_ask_to_wait(otlp_receiver: OtlpReceiver) -> None:
    """Retry-After is passed on; without it the replay decides."""
    otlp_receiver.fault(status=429, retry_after_s=12)
    assert send(otlp_receiver.endpoint).retry_after_s == 12
    otlp_receiver.fault(status=429)
    assert send(otlp_receiver.endpoint).retry_after_s is None


@pytest.mark.parametrize("protocol", ["http/protobuf", GRPC])
def test_no_secret_comes_back(
    otlp_receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    """A server that repeats the credentials in its refusal does not get them shown."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"authorization=Bearer%20{SECRET}")
    otlp_receiver.fault(status=400, echo="authorization")
    url = otlp_receiver.endpoint
    if protocol == GRPC:
        url = f"http://127.0.0.1:{otlp_receiver.grpc_port}"
    reply = send(url, protocol)
    assert otlp_receiver.requests[-1].headers["authorization"] == f"Bearer {SECRET}"
    assert SECRET not in reply.reason
    assert "…" in reply.reason


def test_compression_applies(otlp_receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """OTEL_EXPORTER_OTLP_COMPRESSION is honoured, as in a run's own exports."""
    for compression in ("gzip", "deflate"):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", compression)
        assert send(otlp_receiver.endpoint).state == "accepted"
        assert otlp_receiver.requests[-1].headers["content-encoding"] == compression
    assert len(otlp_receiver.logs()) == 2


def test_variables_of_a_run_do_not_redirect_a_replay(
    otlp_receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Endpoint, protocol and switches in the environment are of the training, not of this."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "http://127.0.0.1:9/v1/logs")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    monkeypatch.setenv("OTEL_LOGS_EXPORTER", "none")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert send(otlp_receiver.endpoint + "/otlp").state == "accepted"
    assert otlp_receiver.requests[-1].path == "/otlp/v1/logs"


def test_tls_with_a_private_authority(
    otlp_receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OTEL_EXPORTER_OTLP_CERTIFICATE makes both protocols trust it; without it nothing is sent."""
    for protocol, (port, authority) in (
        ("http/protobuf", otlp_receiver.https),
        (GRPC, otlp_receiver.grpcs),
    ):
        url = f"https://127.0.0.1:{port}"
        monkeypatch.delenv("OTEL_EXPORTER_OTLP_CERTIFICATE", raising=False)
        assert send(url, protocol).state in {"denied", "unavailable"}
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", str(authority))
        assert send(url, protocol).state == "accepted"


def test_a_certificate_that_cannot_be_read_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The message names the variables."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nowhere/ca.pem")
    with pytest.raises(ConfigError, match="OTEL_EXPORTER_OTLP_"):
        make_sender("https://127.0.0.1:4317", "grpc")


def test_nobody_there() -> None:
    """A port without a server is unavailable, in words without the address's credentials."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        reply = send(f"http://user:{SECRET}@127.0.0.1:{port}")
        assert reply.state == "unavailable"
        assert SECRET not in reply.reason
        assert str(port) in reply.reason
        assert send(f"http://127.0.0.1:{port}", GRPC).state == "unavailable"


def test_partial_success_is_told(answers: tuple[str, list[tuple[int, bytes]]]) -> None:
    """A successful answer that rejects items is not taken for acceptance; a warning alone is."""
    url, given = answers
    response = ExportLogsServiceResponse()
    response.partial_success.error_message = "old ones are kept for a day only"
    given.append((200, response.SerializeToString()))
    assert send(url).state == "accepted"
    response.partial_success.rejected_log_records = 1
    given.append((200, response.SerializeToString()))
    reply = send(url)
    assert reply.state == "partial"
    assert reply.reason == "1 items rejected old ones are kept for a day only"


def test_error_bodies_are_read(answers: tuple[str, list[tuple[int, bytes]]]) -> None:
    """OTLP answers errors with a protobuf Status, others with text; long ones are cut."""
    url, given = answers
    given.append((400, Status(code=3, message="out of bounds").SerializeToString()))
    assert send(url).reason == "HTTP 400 out of bounds"
    given.append((400, b"too old\n\x1b[31msample " + b"x" * 5000))
    reason = send(url).reason
    assert reason.startswith("HTTP 400 too old [31msample xxx")
    assert len(reason) < 300
    given.append((200, b"\xff\xfe not protobuf"))
    assert send(url).state == "accepted"


@pytest.mark.parametrize("url", ["collector:4318", "ftp://collector", "", "collector"])
def test_an_address_for_http_needs_its_scheme(url: str) -> None:
    """It is a usage error that says how an address looks."""
    with pytest.raises(ConfigError, match="http://collector:4318"):
        make_sender(url, "http/protobuf")


def test_a_broken_line_is_not_sent(otlp_receiver: OtlpReceiver) -> None:
    """Over both protocols."""
    plain_grpc = f"http://127.0.0.1:{otlp_receiver.grpc_port}"
    for url, protocol in ((otlp_receiver.endpoint, "http/protobuf"), (plain_grpc, GRPC)):
        assert send(url, protocol, line=b"{broken").state == "corrupt"
    assert otlp_receiver.requests == []
