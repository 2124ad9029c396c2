"""``costlens doctor`` and OTLP endpoints of every kind, right and wrong, over real sockets."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from costlens.cli.app import main
from costlens.cli.doctor.answer import Answer, Status
from costlens.cli.doctor.clock import check_clock
from costlens.cli.doctor.endpoint import check_otlp, check_signal
from costlens.cli.doctor.sniff import sniff
from costlens.config import Config
from tests.fixtures_otlp import OtlpReceiver

SECRET = "hunter2-and-more"


@pytest.fixture
def doctor(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[], tuple[int, dict[str, Any], str]]:
    """Return a function that runs the command; it returns exit code, document and stderr."""

    def run() -> tuple[int, dict[str, Any], str]:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["costlens", "doctor", "--json"])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), json.loads(out), err

    return run


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Return a port that accepts connections and never says a word."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield server.getsockname()[1]


@pytest.fixture
def closed_port() -> int:
    """Return a port that nothing listens at."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        return int(server.getsockname()[1])


def ask(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Answer:
    """Return the one answer about traces with these OTEL_EXPORTER_OTLP_* variables."""
    for name, value in variables.items():
        monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{name}", value)
    (answer,) = check_signal("traces")
    return answer


def test_what_listens_is_recognized(
    otlp_receiver: OtlpReceiver, silent_port: int, closed_port: int
) -> None:
    """HTTP, gRPC, TLS, silence and nothing are told apart by a few bytes."""
    ports = {
        "http": otlp_receiver.http_port,
        "grpc": otlp_receiver.grpc_port,
        "tls": otlp_receiver.https[0],
        "silent": silent_port,
        "refused": closed_port,
    }
    found = {kind: sniff("127.0.0.1", port, 1.0) for kind, port in ports.items()}
    assert found == {kind: kind for kind in ports}
    assert sniff("127.0.0.1", otlp_receiver.grpcs[0], 1.0) == "tls"
    assert sniff("no-such-host.invalid", 4318) == "no_host"


def test_a_good_endpoint_takes_an_empty_export(
    otlp_receiver: OtlpReceiver, doctor: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every signal is asked with the user's own headers, and no data is left behind."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", otlp_receiver.endpoint)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"authorization=Bearer%20{SECRET}")
    monkeypatch.setenv("OTEL_LOGS_EXPORTER", "otlp")
    _, document, err = doctor()
    checks = {check["name"]: check for check in document["checks"]}
    for signal in ("traces", "metrics", "logs"):
        assert checks[f"otlp {signal}"]["status"] == "ok", checks[f"otlp {signal}"]
    assert {request.signal for request in otlp_receiver.requests} == {"traces", "metrics", "logs"}
    headers = {request.headers["authorization"] for request in otlp_receiver.requests}
    assert headers == {f"Bearer {SECRET}"}
    assert not [*otlp_receiver.spans(), *otlp_receiver.metrics(), *otlp_receiver.logs()]
    assert SECRET not in json.dumps(document) + err
    assert checks["clock"]["answers"][0]["text"].startswith("within 3 s of 127.0.0.1")


def test_a_good_grpc_endpoint(otlp_receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The protocol of the variables is spoken."""
    answer = ask(
        monkeypatch, ENDPOINT=f"http://127.0.0.1:{otlp_receiver.grpc_port}", PROTOCOL="grpc"
    )
    assert answer.status is Status.OK, answer


def test_a_good_tls_endpoint(otlp_receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its authority named TLS is fine, without it is told which variable names it."""
    port, authority = otlp_receiver.https
    endpoint = f"https://127.0.0.1:{port}"
    unknown = ask(monkeypatch, ENDPOINT=endpoint)
    assert unknown.status is Status.PROBLEM
    assert "TLS" in unknown.text
    assert "OTEL_EXPORTER_OTLP_CERTIFICATE" in (unknown.fix or "")
    assert ask(monkeypatch, ENDPOINT=endpoint, CERTIFICATE=str(authority)).status is Status.OK


def test_http_spoken_to_a_grpc_port(
    otlp_receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commonest mistake, 4317 for 4318: the protocol to set and the port to take are named."""
    answer = ask(monkeypatch, ENDPOINT=f"http://127.0.0.1:{otlp_receiver.grpc_port}")
    assert answer.status is Status.PROBLEM
    assert "speaks gRPC and HTTP is spoken to it" in answer.text
    assert "OTEL_EXPORTER_OTLP_PROTOCOL=grpc" in (answer.fix or "")


def test_grpc_spoken_to_an_http_port(
    otlp_receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other way round."""
    answer = ask(monkeypatch, ENDPOINT=otlp_receiver.endpoint, PROTOCOL="grpc")
    assert answer.status is Status.PROBLEM
    assert "speaks HTTP and gRPC is spoken to it" in answer.text
    assert "http/protobuf" in (answer.fix or "")


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_plaintext_spoken_to_tls_and_tls_to_plaintext(
    otlp_receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    """C091: either way the scheme to write is named."""
    is_grpc = protocol == "grpc"
    secure = (otlp_receiver.grpcs if is_grpc else otlp_receiver.https)[0]
    plain = otlp_receiver.grpc_port if is_grpc else otlp_receiver.http_port
    answer = ask(monkeypatch, ENDPOINT=f"http://127.0.0.1:{secure}", PROTOCOL=protocol)
    assert "wants TLS and plaintext is spoken" in answer.text
    assert "https://" in (answer.fix or "")
    answer = ask(monkeypatch, ENDPOINT=f"https://127.0.0.1:{plain}", PROTOCOL=protocol)
    assert "is plaintext and TLS is spoken" in answer.text
    assert "http://" in (answer.fix or "")


@pytest.mark.parametrize("status", [401, 403, 404])
@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_a_refusal_is_explained(
    otlp_receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch, status: int, protocol: str
) -> None:
    """C151: credentials and paths are told by the variable that holds them, and never shown."""
    port = otlp_receiver.grpc_port if protocol == "grpc" else otlp_receiver.http_port
    otlp_receiver.fault(status=status, echo="authorization")
    answer = ask(
        monkeypatch,
        ENDPOINT=f"http://127.0.0.1:{port}",
        PROTOCOL=protocol,
        HEADERS=f"authorization={SECRET}",
    )
    assert answer.status is Status.PROBLEM
    told = f"{answer.text} {answer.fix} {dict(answer.details)}"
    assert SECRET not in told
    if status != 404:
        assert "OTEL_EXPORTER_OTLP_HEADERS" in told
    elif protocol != "grpc":
        assert "/v1/<signal>" in told


def test_a_busy_endpoint_is_no_problem(
    otlp_receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """429 is a matter of the moment: a run would try again."""
    otlp_receiver.fault(status=429)
    answer = ask(monkeypatch, ENDPOINT=otlp_receiver.endpoint, TIMEOUT="300")
    assert answer.status is Status.WARNING, answer


def test_nothing_there_and_no_host(monkeypatch: pytest.MonkeyPatch, closed_port: int) -> None:
    """A refused connection and a name that nobody knows are two mistakes."""
    answer = ask(monkeypatch, ENDPOINT=f"http://127.0.0.1:{closed_port}", TIMEOUT="300")
    assert f"nothing listens at 127.0.0.1:{closed_port}" in answer.text
    answer = ask(monkeypatch, ENDPOINT="http://no-such-host.invalid:4318", TIMEOUT="300")
    assert "no host of the name no-such-host.invalid" in answer.text


def test_dead_endpoints_take_seconds_all_together(
    doctor: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, silent_port: int
) -> None:
    """Three signals to a host that says nothing: looked at side by side, within ten seconds."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{silent_port}")
    monkeypatch.setenv("OTEL_LOGS_EXPORTER", "otlp")
    began_s = time.monotonic()
    code, document, _ = doctor()
    assert time.monotonic() - began_s < 10
    assert code == 1
    assert document["status"] == "problem"
    found = {check["name"]: check["answers"][0]["text"] for check in document["checks"]}
    for signal in ("traces", "metrics", "logs"):
        assert "accepts connections and says nothing" in found[f"otlp {signal}"]


def test_without_an_endpoint_nothing_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Telemetry stays in files then; what could be set is named. A bad variable is a problem."""
    (answer,) = check_otlp(Config())
    assert answer.status is Status.SKIPPED
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in (answer.fix or "")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    (answer,) = check_otlp(Config())
    assert "OTEL_SDK_DISABLED" in answer.text
    monkeypatch.delenv("OTEL_SDK_DISABLED")


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("ENDPOINT", "collector:4318", "got 'collector:4318': it begins with neither http:// nor"),
        ("ENDPOINT", "collector:4318", "write http://collector:4318, or for a gRPC collector set"),
        ("ENDPOINT", "not a url", "got 'not a url': it holds a space"),
        ("TRACES_ENDPOINT", "http://", "got 'http://': it names no host"),
        ("ENDPOINT", "http://[::1", "its host cannot be read"),
        ("ENDPOINT", "http://c:port", "its port is no number from 1 to 65535"),
        ("ENDPOINT", "http://c:99999", "its port is no number from 1 to 65535"),
        ("ENDPOINT", "htp://me:s3cret/x@c:4318?key=s3cret", "got 'htp://***@c:4318?***'"),
        ("ENDPOINT", "me:s3cret@c:4318", "write http://***@c:4318"),
        ("ENDPOINT", "htp://me:s3cret://x@c:4318", "got 'htp://***@c:4318'"),
    ],
)
def test_what_is_no_endpoint_is_told_once(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, told: str
) -> None:
    """Variable, value without secrets, what is allowed, what to write; and nobody is asked."""
    monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{variable}", value)
    (answer,) = check_otlp(Config())
    assert answer.status is Status.PROBLEM
    assert f"OTEL_EXPORTER_OTLP_{variable} must be a URL such as http://host:4318" in answer.text
    assert told in answer.text
    (traces,) = check_signal("traces")
    assert traces.status is Status.SKIPPED
    assert traces.text == f"OTEL_EXPORTER_OTLP_{variable} names no endpoint: see otlp"
    assert "s3cret" not in answer.text + traces.text
    assert not [each for each in check_clock() if "against" in each.details]


@pytest.mark.parametrize("value", ["collector:4317", "http://collector:4317", "unix:///run/otel"])
def test_grpc_needs_no_scheme(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """What gRPC takes for a target is none of it refused."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", value)
    assert [answer.status for answer in check_otlp(Config())] == [Status.OK]
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:port")
    (answer,) = check_otlp(Config())
    assert "its port is no number" in answer.text


def test_the_fix_names_the_variable_that_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a signal has an endpoint of its own, the general one mends nothing."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://no-such-host.invalid/t")
    (answer,) = check_signal("traces")
    assert (answer.fix or "").startswith("mend OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def test_a_wrong_clock_is_told(
    otlp_receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten minutes ahead of the collector is a problem, half a minute a warning."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", otlp_receiver.endpoint)
    real = time.time
    for ahead_s, status in ((600.0, Status.PROBLEM), (30.0, Status.WARNING)):
        monkeypatch.setattr("costlens.cli.doctor.clock.time.time", lambda s=ahead_s: real() + s)
        answer = next(iter(check_clock()))
        monkeypatch.undo()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", otlp_receiver.endpoint)
        assert answer.status is status, answer
        assert "ahead of 127.0.0.1" in answer.text
