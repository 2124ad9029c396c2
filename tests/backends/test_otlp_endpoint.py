"""The SDK's exporters, built from the environment, against a real receiver."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import certifi
import pytest

from costlens.export.otel_endpoint import (
    SignalExporter,
    build_exporters,
    build_resource,
    read_settings,
)
from costlens.export.otel_settings import SIGNALS
from tests.backends.otlp_batches import batch_of, logs, metrics, spans
from tests.fixtures_otlp import OtlpReceiver
from tests.log_events import capture_events

OTLP = "OTEL_EXPORTER_OTLP_"
Build = Callable[..., dict[str, SignalExporter]]


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> Iterator[Build]:
    """Return `build(base_url=None, **variables)`: the exporters of an environment, closed later."""
    built: list[SignalExporter] = []

    def make(base_url: str | None = None, **variables: object) -> dict[str, SignalExporter]:
        for name, value in variables.items():
            monkeypatch.setenv(f"OTEL_{name}", str(value))
        exporters = build_exporters(read_settings(base_url))
        built.extend(exporters.values())
        return dict(exporters)

    yield make
    for exporter in built:
        exporter.shutdown()


def _export_all(exporters: dict[str, SignalExporter]) -> list[bool]:
    return [exporter.export(batch_of(signal)).ok for signal, exporter in exporters.items()]


@pytest.mark.parametrize("slash", ["", "/"])
@pytest.mark.parametrize("where", ["environment", "code"])
def test_base_endpoint_gets_the_signals_path(
    otlp_receiver: OtlpReceiver, build: Build, slash: str, where: str
) -> None:
    """C089: a base with or without a slash, from environment or code, ends in /v1/<signal>."""
    base = otlp_receiver.endpoint + slash
    if where == "code":
        exporters = build(base, LOGS_EXPORTER="otlp")
    else:
        exporters = build(EXPORTER_OTLP_ENDPOINT=base, LOGS_EXPORTER="otlp")
    assert _export_all(exporters) == [True, True, True]
    assert [r.path for r in otlp_receiver.requests] == ["/v1/traces", "/v1/metrics", "/v1/logs"]


def test_signals_own_endpoint_is_used_as_given(otlp_receiver: OtlpReceiver, build: Build) -> None:
    """C089: nothing is appended to a signal's own endpoint, and it beats the general one."""
    own = f"{otlp_receiver.endpoint}/otlp/t"
    exporters = build(
        EXPORTER_OTLP_ENDPOINT=f"{otlp_receiver.endpoint}/prefix", EXPORTER_OTLP_TRACES_ENDPOINT=own
    )
    assert _export_all(exporters) == [True, True]
    assert [r.path for r in otlp_receiver.requests] == ["/otlp/t", "/prefix/v1/metrics"]


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_items_arrive_whole(otlp_receiver: OtlpReceiver, build: Build, protocol: str) -> None:
    """A span, a point and a log record arrive with their rank's resource on both transports."""
    resource = build_resource("run-1", attempt=2, rank=3)
    port = otlp_receiver.grpc_port if protocol == "grpc" else otlp_receiver.http_port
    exporters = build(
        EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{port}",
        EXPORTER_OTLP_PROTOCOL=protocol,
        EXPORTER_OTLP_COMPRESSION="gzip",
        LOGS_EXPORTER="otlp",
    )
    assert exporters["traces"].export(spans("a", resource=resource)).ok
    assert exporters["metrics"].export(metrics("m", 1.5, resource)).ok
    assert exporters["logs"].export(logs("hello", resource)).ok
    (span,), (point,), (record,) = (
        otlp_receiver.spans(),
        otlp_receiver.points("m"),
        otlp_receiver.logs(),
    )
    assert span.proto.name == "a"
    assert (point.value, point.unit, point.kind) == (1.5, "s", "gauge")
    assert record.proto.body.string_value == "hello"
    assert span.resource == point.resource == record.resource
    assert span.resource["costlens.rank"] == 3
    assert {r.transport for r in otlp_receiver.requests} == {protocol.partition("/")[0]}


def test_headers_reach_the_collector_as_meant(otlp_receiver: OtlpReceiver, build: Build) -> None:
    """C090: spaces, `=` and percent codes survive; a bad header gives a warning, not its value."""
    wanted = {
        "Authorization=Bearer abc": ("authorization", "Bearer abc"),
        "Authorization=Bearer%20abc": ("authorization", "Bearer abc"),
        "Authorization=Basic eA==": ("authorization", "Basic eA=="),
        "Authorization=Basic a b%3D": ("authorization", "Basic a b="),
        "k=p@ss%2Cword": ("k", "p@ss,word"),
    }
    for text, (name, value) in wanted.items():
        exporters = build(EXPORTER_OTLP_ENDPOINT=otlp_receiver.endpoint, EXPORTER_OTLP_HEADERS=text)
        assert exporters["traces"].export(spans("one")).ok
        assert otlp_receiver.requests[-1].headers[name] == value, text
    with capture_events() as lines:
        exporters = build(EXPORTER_OTLP_HEADERS="bad-t0ken,good=1,x=t0ken%0A%0Dy")
        assert exporters["traces"].export(spans("one")).ok
    assert otlp_receiver.requests[-1].headers["good"] == "1"
    assert "x" not in otlp_receiver.requests[-1].headers
    assert [line["log_level"] for line in lines] == ["warning", "warning"]
    assert "entry 1" in lines[0]["message"]
    assert "t0ken" not in str(lines)


@pytest.mark.parametrize("text", ["bad", "bad-t0ken,x=t0%0Aken", "a=1,bad,k=p@ss%2Cword"])
def test_bad_headers_do_not_stop_grpc(otlp_receiver: OtlpReceiver, build: Build, text: str) -> None:
    """C090: over gRPC, too, the good headers are sent and the bad ones are not."""
    exporters = build(
        EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{otlp_receiver.grpc_port}",
        EXPORTER_OTLP_PROTOCOL="grpc",
        EXPORTER_OTLP_HEADERS=text,
    )
    assert exporters["traces"].export(spans("one")).ok
    headers = otlp_receiver.requests[0].headers
    assert "x" not in headers
    assert headers.get("k") == ("p@ss,word" if "k=" in text else None)


def test_netrc_does_not_replace_the_users_header(
    otlp_receiver: OtlpReceiver, build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C090: an entry in .netrc does not overwrite an Authorization that was set on purpose."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login someone password else\n")
    monkeypatch.setenv("NETRC", str(netrc))
    exporters = build(
        EXPORTER_OTLP_ENDPOINT=otlp_receiver.endpoint,
        EXPORTER_OTLP_HEADERS="Authorization=Bearer x",
    )
    assert exporters["traces"].export(spans("one")).ok
    assert otlp_receiver.requests[0].headers["authorization"] == "Bearer x"


PLAIN, TLS = "grpc", "grpcs"


@pytest.mark.parametrize(
    ("scheme", "insecure", "transport"),
    [
        ("http://", None, PLAIN),
        ("https://", None, TLS),
        ("", "true", PLAIN),
        ("", "false", TLS),
        ("", None, TLS),
        ("http://", "false", PLAIN),
        ("https://", "true", TLS),
    ],
)
def test_grpc_speaks_tls_as_the_specification_says(
    otlp_receiver: OtlpReceiver, build: Build, scheme: str, insecure: str | None, transport: str
) -> None:
    """C091: http:// is plaintext, https:// TLS, a bare host:port TLS unless INSECURE=true."""
    tls_port, authority = otlp_receiver.grpcs
    port = otlp_receiver.grpc_port if transport == PLAIN else tls_port
    variables = {"EXPORTER_OTLP_INSECURE": insecure} if insecure else {}
    exporters = build(
        EXPORTER_OTLP_ENDPOINT=f"{scheme}127.0.0.1:{port}",
        EXPORTER_OTLP_PROTOCOL="grpc",
        EXPORTER_OTLP_CERTIFICATE=authority,
        **variables,
    )
    assert exporters["traces"].export(spans("one")).ok
    assert exporters["metrics"].export(metrics("one", 1.0)).ok
    assert [r.transport for r in otlp_receiver.requests] == [transport, transport]


def test_failed_handshake_is_reported_with_a_hint(
    otlp_receiver: OtlpReceiver, build: Build
) -> None:
    """C091: TLS spoken to a plaintext collector ends in a hint at http:// and INSECURE."""
    exporters = build(
        EXPORTER_OTLP_ENDPOINT=f"127.0.0.1:{otlp_receiver.grpc_port}",
        EXPORTER_OTLP_PROTOCOL="grpc",
        EXPORTER_OTLP_TIMEOUT="500",
    )
    result = exporters["traces"].export(spans("one"))
    assert (result.ok, result.error_type) == (False, "grpc_tls_handshake")
    assert result.is_retryable
    assert result.hint is not None
    assert result.hint.startswith(f"127.0.0.1:{otlp_receiver.grpc_port}: ")
    assert "OTEL_EXPORTER_OTLP_INSECURE=true" in result.hint


def test_https_uses_the_given_authority_and_refuses_others(
    otlp_receiver: OtlpReceiver, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HTTPS works with the collector's authority, whatever the site's bundle; else it hints."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", certifi.where())
    port, authority = otlp_receiver.https
    variables = {"EXPORTER_OTLP_ENDPOINT": f"https://localhost:{port}"}
    trusting = build(**variables, EXPORTER_OTLP_CERTIFICATE=authority)
    assert trusting["traces"].export(spans("one")).ok
    distrusting = build(**variables, EXPORTER_OTLP_CERTIFICATE="", EXPORTER_OTLP_TIMEOUT="500")
    result = distrusting["traces"].export(spans("one"))
    assert (result.error_type, result.is_retryable) == ("SSLError", False)
    assert "OTEL_EXPORTER_OTLP_CERTIFICATE" in str(result.hint)


@pytest.mark.parametrize(
    ("status", "error_type", "is_retryable"),
    [
        (302, "http_302", False),
        (400, "http_400", False),
        (401, "http_401", False),
        (404, "http_404", False),
        (429, "http_429", True),
        (503, "http_503", True),
    ],
)
def test_refusals_are_told_apart(
    otlp_receiver: OtlpReceiver, build: Build, status: int, error_type: str, is_retryable: bool
) -> None:
    """The status says whether the batch may succeed later; a redirect is not taken for success."""
    exporters = build(EXPORTER_OTLP_ENDPOINT=otlp_receiver.endpoint, EXPORTER_OTLP_TIMEOUT="500")
    otlp_receiver.fault(status=status)
    result = exporters["traces"].export(spans("one"))
    assert (result.ok, result.error_type, result.is_retryable) == (False, error_type, is_retryable)


@pytest.mark.parametrize(
    ("status", "error_type", "is_retryable"),
    [(401, "grpc_UNAUTHENTICATED", False), (503, "grpc_UNAVAILABLE", True)],
)
def test_grpc_refusals_are_told_apart_every_time(
    otlp_receiver: OtlpReceiver, build: Build, status: int, error_type: str, is_retryable: bool
) -> None:
    """The status is known for repeated failures, too, which the SDK's own filter would hide."""
    exporters = build(
        EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{otlp_receiver.grpc_port}",
        EXPORTER_OTLP_PROTOCOL="grpc",
        EXPORTER_OTLP_TIMEOUT="500",
    )
    otlp_receiver.fault(status=status)
    for signal in ("traces", "metrics", "traces"):
        result = exporters[signal].export(batch_of(signal))
        assert (result.error_type, result.is_retryable) == (error_type, is_retryable)


def test_export_without_a_request_is_no_success(otlp_receiver: OtlpReceiver, build: Build) -> None:
    """An export that fails before anything is sent does not inherit the success before it."""
    exporter = build(EXPORTER_OTLP_ENDPOINT=otlp_receiver.endpoint)["traces"]
    assert exporter.export(spans("one")).ok
    exporter.shutdown()
    assert not exporter.export(spans("two")).ok
    assert len(otlp_receiver.requests) == 1


def test_unanswered_export_ends_with_the_timeout(otlp_receiver: OtlpReceiver, build: Build) -> None:
    """A collector that never answers costs the timeout, and the batch may be tried again."""
    otlp_receiver.fault(hang=True)
    exporters = build(EXPORTER_OTLP_ENDPOINT=otlp_receiver.endpoint, EXPORTER_OTLP_TIMEOUT="200")
    result = exporters["traces"].export(spans("one"))
    assert (result.error_type, result.is_retryable) == ("ReadTimeout", True)


def test_short_outage_is_bridged_by_the_exporters_own_retry(
    otlp_receiver: OtlpReceiver, build: Build
) -> None:
    """One 503 with Retry-After costs a retry, not the batch."""
    otlp_receiver.fault(status=503, times=1, retry_after_s=0)
    exporters = build(EXPORTER_OTLP_ENDPOINT=otlp_receiver.endpoint)
    assert exporters["traces"].export(spans("one")).ok
    assert [r.accepted for r in otlp_receiver.requests] == [False, True]


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_exports_leave_the_trainings_random_numbers_alone(
    otlp_receiver: OtlpReceiver, build: Build, protocol: str
) -> None:
    """The global generator of `random` stands where it stood, after successes and failures."""
    port = otlp_receiver.grpc_port if protocol == "grpc" else otlp_receiver.http_port
    state = random.getstate()
    exporters = build(
        EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{port}",
        EXPORTER_OTLP_PROTOCOL=protocol,
        EXPORTER_OTLP_TIMEOUT="500",
    )
    exporters["traces"].export(spans("one"))
    otlp_receiver.fault(status=503)
    exporters["traces"].export(spans("one"))
    assert random.getstate() == state


def test_logs_of_the_host_applications_exporters_stay(
    otlp_receiver: OtlpReceiver, build: Build, caplog: pytest.LogCaptureFixture
) -> None:
    """Only records of our own exports are caught: the same logger still speaks for the host."""
    exporters = build(EXPORTER_OTLP_ENDPOINT=otlp_receiver.endpoint, EXPORTER_OTLP_TIMEOUT="200")
    root_before = (list(logging.root.handlers), list(logging.root.filters), logging.root.level)
    otlp_receiver.fault(status=400)
    with caplog.at_level(logging.DEBUG):
        exporters["traces"].export(spans("one"))
        assert caplog.records == []
        logging.getLogger("opentelemetry.exporter.otlp.proto.http.trace_exporter").error("theirs")
    assert [record.message for record in caplog.records] == ["theirs"]
    assert (list(logging.root.handlers), list(logging.root.filters)) == root_before[:2]


def test_exporter_that_cannot_be_built_is_left_out(build: Build) -> None:
    """A variable the SDK chokes on costs its signal and a warning, not the run."""
    with capture_events() as lines:
        exporters = build(
            EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:4317",
            EXPORTER_OTLP_PROTOCOL="grpc",
            EXPORTER_OTLP_TRACES_TIMEOUT="10s",
            EXPORTER_OTLP_COMPRESSION="none",
        )
    assert set(exporters) == {"metrics"}
    assert "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT" in lines[0]["message"]
    assert "traces will not be exported" in lines[1]["message"]


def test_grpc_port_over_http_gets_a_hint(build: Build) -> None:
    """The classic mistake, HTTP spoken to port 4317, is named in the failure."""
    exporters = build(EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:4317", EXPORTER_OTLP_TIMEOUT="100")
    assert "OTEL_EXPORTER_OTLP_PROTOCOL=grpc" in str(exporters["traces"].export(spans("a")).hint)


def test_nothing_is_built_where_nothing_is_configured(build: Build) -> None:
    """Without OTEL_* there are no exporters, whatever stands at the usual ports."""
    assert build() == {}


def test_importing_the_modules_loads_no_sdk() -> None:
    """Reading the settings is light; the SDK, requests and gRPC come with the first exporter."""
    import subprocess
    import sys

    script = (
        "import sys; from costlens.export import otel_endpoint, otel_worker\n"
        "assert otel_endpoint.build_exporters(otel_endpoint.read_settings()) == {}\n"
        "heavy = {'requests', 'grpc', 'opentelemetry.sdk', 'google.protobuf', 'torch'}\n"
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("signal", SIGNALS)
def test_first_export_imports_nothing(
    otlp_receiver: OtlpReceiver, build: Build, signal: str
) -> None:
    """All imports happen while building: the first export must not hold up a step by importing."""
    import sys

    exporters = build(EXPORTER_OTLP_ENDPOINT=otlp_receiver.endpoint, LOGS_EXPORTER="otlp")
    batch = batch_of(signal)
    before = set(sys.modules)
    assert exporters[signal].export(batch).ok
    assert set(sys.modules) - before == set()
