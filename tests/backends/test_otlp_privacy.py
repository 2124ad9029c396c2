"""No header value reaches a log, an error, the health or the screen (law 8)."""

from __future__ import annotations

import logging

import pytest

from costlens.export.otel_endpoint import build_exporters, read_settings
from costlens.export.otel_worker import ExportWorkers
from tests.backends.otlp_batches import batch_of
from tests.fixtures_otlp import OtlpReceiver
from tests.log_events import capture_events

SECRET = "s3cret-t0ken"


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
@pytest.mark.parametrize("status", [401, 503])
def test_echoed_credentials_are_shown_nowhere(
    otlp_receiver: OtlpReceiver,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    protocol: str,
    status: int,
) -> None:
    """C151: a secret that the collector echoes in all parts of its refusal is shown nowhere.

    Logs are at DEBUG; the secret is in the request, and in nothing that anybody can read.
    """
    port = otlp_receiver.grpc_port if protocol == "grpc" else otlp_receiver.http_port
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    monkeypatch.setenv(
        "OTEL_EXPORTER_OTLP_HEADERS", f"Authorization=Bearer {SECRET},{SECRET},x={SECRET}%00"
    )
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "500")
    otlp_receiver.fault(status=status, echo="authorization")
    with caplog.at_level(logging.DEBUG), capture_events() as lines:
        settings = read_settings()
        exporters = build_exporters(settings)
        workers = ExportWorkers(exporters)
        workers.start()
        for signal in exporters:
            workers.submit(signal, batch_of(signal), 1)
        otlp_receiver.wait_for(lambda r: {q.signal for q in r.requests} == set(exporters))
        health = workers.close()
    assert otlp_receiver.requests[0].headers["authorization"] == f"Bearer {SECRET}"
    assert {h.exports_failed for h in health.values()} <= {1, 2}
    printed = capfd.readouterr()
    shown = [lines, health, settings, exporters, workers.dropped(), caplog.text, printed]
    assert SECRET not in str(shown)
    assert any(line["event"] == "costlens.export.failed" for line in lines)


def test_credentials_in_the_endpoint_are_not_shown(
    otlp_receiver: OtlpReceiver,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """User, password and query of an endpoint are used, and kept out of what is said about it."""
    place = f"user:{SECRET}@127.0.0.1:{otlp_receiver.http_port}/v1/traces?key={SECRET}"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"http://{place}")
    otlp_receiver.fault(status=401, echo="authorization")
    with caplog.at_level(logging.DEBUG), capture_events() as lines:
        settings = read_settings()
        exporters = build_exporters(settings)
        result = exporters["traces"].export(batch_of("traces"))
        exporters["traces"].shutdown()
    (request,) = otlp_receiver.requests
    assert request.path == f"/v1/traces?key={SECRET}"
    assert request.headers["authorization"].startswith("Basic ")
    shown = str([lines, settings, exporters, result, caplog.text])
    assert SECRET not in shown
    assert request.headers["authorization"].removeprefix("Basic ") not in shown
