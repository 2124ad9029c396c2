"""Many short runs in one process leave nothing behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.faults.jobs import Job
from tests.fixtures_otlp import OtlpReceiver

MIB = 1024**2
# OpenTelemetry's SDK keeps a hook for forks for each provider it ever made: about 1 KiB.
OBJECTS_OF_SDK = 10


def grow(
    folder: Path, kind: str, num_runs: int, num_warm_up: int, **environ: str
) -> dict[str, int]:
    """Return by what the process has grown between the warm-up and the end."""
    job = Job(folder, "job_many.py", kind, str(num_runs), str(num_warm_up), **environ).end()
    assert job.code == 0, job.err
    before, after = json.loads(job.out[0])
    assert (after["threads"], after["runs"]) == (1, 0)
    return {name: after[name] - before[name] for name in before}


@pytest.mark.slow
def test_two_thousand_runs_leave_nothing(tmp_path: Path) -> None:
    """Not an object a run, no file, thread or tap, and no memory worth the name."""
    grown = grow(tmp_path, "plain", 2000, 100, COSTLENS_OTLP_FILE="0")
    assert grown["objects"] < 100
    assert grown["blocks"] < 1000
    assert (grown["files"], grown["threads"], grown["taps"]) == (0, 0, 0)
    assert grown["rss_bytes"] < 16 * MIB
    assert len([*tmp_path.glob("*/record-1-0.json")]) == 2000


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc", "file"])
def test_exporting_runs_leave_no_worker_or_connection(
    otlp_receiver: OtlpReceiver, tmp_path: Path, protocol: str
) -> None:
    """Sixty runs that export all signals: nothing of ours stays, and nothing of theirs grows."""
    port = otlp_receiver.grpc_port if protocol == "grpc" else otlp_receiver.http_port
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        "OTEL_LOGS_EXPORTER": "otlp",
    }
    grown = grow(tmp_path, "plain", 60, 20, **({} if protocol == "file" else environ))
    assert grown["objects"] <= 40 * OBJECTS_OF_SDK + 40
    assert (grown["files"], grown["threads"], grown["taps"]) == (0, 0, 0)
    if protocol != "file":
        instances = {p.resource["service.instance.id"] for p in otlp_receiver.points()}
        assert len(instances) == 60


@pytest.mark.slow
def test_fits_leave_nothing_on_a_trainer_or_behind(tmp_path: Path) -> None:
    """Sixty fits with new callbacks, sixty with a Trainer that stays, of which one run remains.

    Its record keeps its newest 60 windows, which is all that grows.
    """
    grown = grow(tmp_path, "fit", 60, 20, COSTLENS_OTLP_FILE="0")
    assert grown["objects"] < 40 * 8 + 60
    assert (grown["files"], grown["threads"], grown["taps"]) == (0, 0, 0)
    assert len([*tmp_path.glob("*/record-*.json")]) == 61
