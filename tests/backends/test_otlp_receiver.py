"""The receiver itself: what other tests may rely on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

from tests.backends import otlp_batches
from tests.fixtures_otlp import OtlpReceiver, attributes_of


def _post(url: str, body: bytes = b"") -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body), timeout=5) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_receiver_keeps_exact_paths_and_headers(otlp_receiver: OtlpReceiver) -> None:
    """A prefix and a query are kept as sent, and the signal is known by the path's end."""
    assert _post(f"{otlp_receiver.endpoint}/some/prefix/v1/logs?tenant=7") == 200
    assert _post(f"{otlp_receiver.endpoint}/elsewhere") == 200
    known, unknown = otlp_receiver.requests
    assert (known.signal, known.path) == ("logs", "/some/prefix/v1/logs?tenant=7")
    assert (unknown.signal, unknown.path) == (None, "/elsewhere")
    assert known.headers["content-length"] == "0"


def test_receiver_refuses_what_is_not_otlp(otlp_receiver: OtlpReceiver) -> None:
    """Bytes that are no export request are answered with 400 and not kept."""
    assert _post(f"{otlp_receiver.endpoint}/v1/traces", b"\xff not protobuf") == 400
    assert otlp_receiver.requests == []


def test_faults_are_counted_chosen_by_signal_and_healed(otlp_receiver: OtlpReceiver) -> None:
    """A fault hits its signals only, as often as asked; refused requests are kept as such."""
    otlp_receiver.fault(status=503, signals=["traces"], times=1)
    traces, metrics = (f"{otlp_receiver.endpoint}/v1/{s}" for s in ("traces", "metrics"))
    assert [_post(metrics), _post(traces), _post(traces)] == [200, 503, 200]
    assert [r.accepted for r in otlp_receiver.requests] == [True, False, True]


def test_hanging_request_ends_with_the_fault(otlp_receiver: OtlpReceiver) -> None:
    """A hung request gets no answer while the fault lasts and a closed connection afterwards."""
    otlp_receiver.fault(hang=True)
    exporter = OTLPSpanExporter(f"{otlp_receiver.endpoint}/v1/traces", timeout=0.2)
    assert exporter.export(otlp_batches.spans("one")).name == "FAILURE"
    exporter.shutdown()
    otlp_receiver.fault()
    assert otlp_receiver.spans() == []
    assert not otlp_receiver.requests[0].accepted


def test_items_come_decoded_with_resource_and_scope(otlp_receiver: OtlpReceiver) -> None:
    """A compressed span arrives whole: name, attributes, resource and scope."""
    from opentelemetry.exporter.otlp.proto.http import Compression

    url = f"{otlp_receiver.endpoint}/v1/traces"
    exporter = OTLPSpanExporter(url, compression=Compression.Gzip)
    exporter.export(otlp_batches.spans("a", "b"))
    exporter.shutdown()
    first, second = otlp_receiver.spans()
    assert (first.proto.name, second.proto.name) == ("a", "b")
    assert first.attributes == attributes_of(first.proto.attributes) == {"tests.name": "a"}
    assert (first.resource, first.scope) == ({"service.name": "tests"}, "tests")
    assert otlp_receiver.requests[0].headers["content-encoding"] == "gzip"


def test_receiver_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    """A test run that is killed leaves no receiver behind."""
    script = (
        "from pathlib import Path; from tests.fixtures_otlp import OtlpReceiver\n"
        f"r = OtlpReceiver(Path({str(tmp_path)!r})); print(r._process.pid, flush=True)\n"
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    )
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", script]
    done = subprocess.run(
        command, cwd=root, stdout=subprocess.PIPE, text=True, timeout=60, check=False
    )
    pid = int(done.stdout)
    deadline = time.monotonic() + 10
    while _is_running(pid):
        if time.monotonic() > deadline:
            os.kill(pid, 9)
            pytest.fail("the receiver outlived its parent")
        time.sleep(0.05)


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"  # a dead process whose new parent has not yet asked for its status
