"""What a dead or silent collector costs a run that ends, in processes of their own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures_otlp import OtlpReceiver

ROOT = Path(__file__).parents[2]
CASE_LIMIT_S = 5.0  # the case's right value; the design's deadline is 3 s
SCRIPT = """
import sys, time
from costlens.export.otel_endpoint import build_exporters, read_settings
from costlens.export.otel_worker import ExportWorkers
from tests.backends.otlp_batches import batch_of
exporters = build_exporters(read_settings())
workers = ExportWorkers(exporters)
workers.start()
for signal in exporters:
    workers.submit(signal, batch_of(signal), 1)
print("start", time.monotonic(), flush=True)
if sys.argv[1] == "close":
    for signal, health in workers.close().items():
        print("health", signal, health.exports_ok, health.items_dropped, flush=True)
sys.exit(7)
"""


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Return a port that takes connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield listener.getsockname()[1]


@pytest.fixture
def refused_port() -> Iterator[int]:
    """Return a port that nobody listens on, held so that nobody else can."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


def _run(port: int, protocol: str, ending: str) -> tuple[float, list[str]]:
    """Return the seconds from the start of the ending to the process's death, and its lines."""
    environ = {
        **os.environ,
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        "OTEL_LOGS_EXPORTER": "otlp",
    }
    command = [sys.executable, "-W", "error", "-c", SCRIPT, ending]
    done = subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    end = time.monotonic()
    assert done.returncode == 7, done.stderr
    # Nothing but costlens's own lines is on standard error: no traceback, no word of the SDK.
    said = [json.loads(line)["event"] for line in done.stderr.splitlines()]
    assert set(said) <= {"costlens.export.failed", "costlens.export.lost"}
    lines = [*done.stdout.splitlines(), *done.stderr.splitlines()]
    (start,) = [float(line.split()[1]) for line in lines if line.startswith("start ")]
    return end - start, lines


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
@pytest.mark.parametrize("kind", ["refused", "silent"])
def test_dead_collector_delays_the_exit_by_the_deadline_at_most(
    request: pytest.FixtureRequest, protocol: str, kind: str
) -> None:
    """C088: refused or silent, all signals together cost no more than the limit.

    The exit code stays, and one line says how much was lost.
    """
    port = request.getfixturevalue(f"{kind}_port")
    took_s, lines = _run(port, protocol, "close")
    assert took_s < CASE_LIMIT_S
    lost = [line for line in lines if "costlens.export.lost" in line]
    assert len(lost) == 1
    assert all(f'"{signal}": 1' in lost[0] for signal in ("traces", "metrics", "logs"))
    assert sorted(line for line in lines if line.startswith("health ")) == [
        f"health {signal} 0 1" for signal in ("logs", "metrics", "traces")
    ]


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_exit_without_close_is_not_held_up(silent_port: int, protocol: str) -> None:
    """A process that never closes its run ends at once, with exports under way."""
    took_s, _ = _run(silent_port, protocol, "no close")
    assert took_s < CASE_LIMIT_S / 2


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_exit_with_a_healthy_collector_loses_nothing(
    otlp_receiver: OtlpReceiver, protocol: str
) -> None:
    """What was submitted just before the end has arrived when the process is gone."""
    port = otlp_receiver.grpc_port if protocol == "grpc" else otlp_receiver.http_port
    _, lines = _run(port, protocol, "close")
    assert {r.signal for r in otlp_receiver.requests} == {"traces", "metrics", "logs"}
    assert all("lost" not in line for line in lines)
