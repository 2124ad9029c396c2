"""Collectors that refuse, never answer or speak something else, under real training loops.

A fault at the back-end changes neither the exit code nor the exception, ends with the deadline, is
explained once, and one line says what was lost. The record is written whatever happens.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.faults import collectors
from tests.faults.jobs import Ended, Job
from tests.fixtures_otlp import OtlpReceiver

EXIT_LIMIT_S = 5.0
NUM_STEPS = 20
# With this deadline several jobs can end at once on two cores.
SHORT = {"COSTLENS_FLUSH_TIMEOUT_S": "0.5"}
ENDPOINT, PROTOCOL = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL"

# Kind of fault: the types of error that it is reported as.
KINDS = {
    "status 400": {"http_400"},
    "status 401": {"http_401"},
    "status 503": {"http_503"},
    "HTTP to gRPC": {"ConnectionError"},
    "gRPC to HTTP": {"grpc_UNAVAILABLE"},
    "HTTP to HTTPS": {"ConnectionError"},
    "HTTPS to HTTP": {"SSLError"},
    "gRPC to TLS": {"grpc_UNAVAILABLE"},
    "TLS to gRPC": {"grpc_tls_handshake"},
}
HINTS = {
    "http_401": "OTEL_EXPORTER_OTLP_HEADERS",
    "SSLError": "http://",
    "grpc_tls_handshake": "OTEL_EXPORTER_OTLP_INSECURE",
}


@pytest.fixture(scope="module")
def ended(
    otlp_process: OtlpReceiver, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Ended]]:
    """Return how a job of each kind ended; three run at a time."""
    receiver, folder = otlp_process, tmp_path_factory.mktemp("jobs")
    with ExitStack() as stack:
        ports = {
            status: stack.enter_context(collectors.answering(status)) for status in (400, 401, 503)
        }
        targets = {f"status {status}": ("http", port, "") for status, port in ports.items()}
        targets |= {
            "HTTP to gRPC": ("http", receiver.grpc_port, ""),
            "gRPC to HTTP": ("http", receiver.http_port, "grpc"),
            "HTTP to HTTPS": ("http", receiver.https[0], ""),
            "HTTPS to HTTP": ("https", receiver.http_port, ""),
            "gRPC to TLS": ("http", receiver.grpcs[0], "grpc"),
            "TLS to gRPC": ("https", receiver.grpc_port, "grpc"),
        }
        found: dict[str, Ended] = {}
        for first in range(0, len(KINDS), 3):
            jobs = {}
            for kind in [*KINDS][first : first + 3]:
                scheme, port, protocol = targets[kind]
                environ = {ENDPOINT: f"{scheme}://127.0.0.1:{port}", PROTOCOL: protocol, **SHORT}
                jobs[kind] = Job(folder / kind, "job_loop.py", str(NUM_STEPS), **environ)
            found |= {kind: job.end() for kind, job in jobs.items()}
        yield found


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_collector_that_cannot_be_used_harms_nothing(ended: dict[str, Ended], kind: str) -> None:
    """C091: one hint a cause, nothing of the SDK's own, one line about what was lost."""
    job = ended[kind]
    assert job.code == 7
    assert job.delay_s < EXIT_LIMIT_S
    check_told(job)
    failures = job.named("costlens.export.failed")
    # Once each, though several batches of two signals met the same fault.
    assert sorted(event["error_type"] for event in failures) == sorted(KINDS[kind])
    for event in failures:
        assert HINTS.get(event["error_type"], "") in event["message"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["refusing", "silent"])
@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_a_dead_collector_costs_the_exit_a_few_seconds(
    tmp_path: Path, kind: str, protocol: str
) -> None:
    """C088: by default all signals together add at most 5 s; the exit code is the script's."""
    with getattr(collectors, kind)() as port:
        environ = {ENDPOINT: f"http://127.0.0.1:{port}", PROTOCOL: protocol}
        job = Job(tmp_path, "job_loop.py", str(NUM_STEPS), **environ).end()
    assert job.code == 7
    assert job.delay_s < EXIT_LIMIT_S
    check_told(job)


@pytest.mark.slow
def test_a_dead_collector_leaves_an_exception_as_it_is(tmp_path: Path) -> None:
    """C088 under Lightning: the user's traceback is the last word, after at most 5 s."""
    with collectors.silent() as port:
        environ = {ENDPOINT: f"http://127.0.0.1:{port}"}
        job = Job(tmp_path, "job_fit.py", str(NUM_STEPS), **environ).end()
    assert job.code == 1
    assert job.err[-1] == "ValueError: planted"
    assert job.delay_s < EXIT_LIMIT_S
    check_told(job)


def check_told(job: Ended) -> None:
    """Check that the record is whole, and that one line tells what was lost."""
    record = job.record
    assert record.progress.samples == NUM_STEPS * 4
    assert record.telemetry.faults == {}
    health = record.telemetry.exports
    assert {*health} == {"traces", "metrics"}
    assert all(part.exports_ok == 0 < part.items_dropped for part in health.values())
    (lost,) = job.named("costlens.export.lost")
    assert lost["num_items"] == {signal: part.items_dropped for signal, part in health.items()}
    text = "\n".join(job.err)
    assert "opentelemetry" not in text
    assert "Transient error" not in text
