"""Forks while a run records and exports: no child hangs, and nothing is sent twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from costlens.core.records import RankRecord
from tests.distributed.launching import Launcher
from tests.fixtures_otlp import OtlpReceiver


def newest(receiver: OtlpReceiver, name: str) -> dict[str, float]:
    """Return the newest value of a counter by the instance that sent it."""
    return {p.resource["service.instance.id"]: p.value for p in receiver.points(name)}


def the_record(launch: Launcher) -> RankRecord:
    """Return the record of the only run."""
    (run,) = launch.runs
    (record,) = launch.records(run).values()
    return record


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "num_children", "protocol"),
    [("idle", 200, "http/protobuf"), ("idle", 60, "grpc"), ("calls", 50, "http/protobuf")],
)
def test_children_that_do_not_train_leave_no_trace(
    launch: Launcher, otlp_receiver: OtlpReceiver, kind: str, num_children: int, protocol: str
) -> None:
    """200 forks under a running export, and 50 that use the run: all end, none counts or sends.

    Over gRPC, too: its own handlers for forks would break the parent's connection, or the child.
    """
    port = otlp_receiver.grpc_port if protocol == "grpc" else otlp_receiver.http_port
    # Slow answers: most forks meet an export that is under way.
    otlp_receiver.fault(delay_s=0.02)
    launch(
        *("job_forks.py", kind, str(num_children)),
        COSTLENS_WINDOW_S="0.02",
        OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{port}",
        OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
    )
    record = the_record(launch)
    assert record.progress.samples == num_children + 3
    assert record.telemetry.faults == {}
    health = record.telemetry.exports
    assert {(part.exports_failed, part.last_error_type) for part in health.values()} == {(0, None)}
    name = f"{record.run.id}/1/0"
    assert newest(otlp_receiver, "costlens.samples") == {name: num_children + 3}
    assert {span.resource["service.instance.id"] for span in otlp_receiver.spans()} == {name}
    check_sent_once(otlp_receiver)


def test_a_child_that_trains_is_a_run_of_its_own(
    launch: Launcher, otlp_receiver: OtlpReceiver
) -> None:
    """C092: both arrive under different identities, the child ends in under 5 s, nothing twice."""
    output = launch("job_forks.py", "trains", "1").output
    parent, child = (
        next(iter(launch.records(run).values()))
        for run in sorted(launch.runs, key=lambda run: run.name.startswith("child"))
    )
    assert (parent.progress.samples, child.progress.samples) == (4, 3)
    assert parent.rank.pid != child.rank.pid
    assert parent.run.id != child.run.id
    assert parent.telemetry.faults == child.telemetry.faults == {}
    assert newest(otlp_receiver, "costlens.samples") == {
        f"{parent.run.id}/1/0": 4,
        f"{child.run.id}/1/0": 3,
    }
    pids: dict[str, set[Any]] = {}
    for span in otlp_receiver.spans():
        pids.setdefault(span.resource["service.instance.id"], set()).add(
            span.resource["process.pid"]
        )
    assert pids == {
        f"{parent.run.id}/1/0": {parent.rank.pid},
        f"{child.run.id}/1/0": {child.rank.pid},
    }
    check_sent_once(otlp_receiver)
    assert float(output.partition("slowest ")[2].split()[0]) < 5


def test_a_child_that_trains_keeps_away_from_grpc(
    launch: Launcher, otlp_receiver: OtlpReceiver
) -> None:
    """C092 over gRPC, which does not survive a fork: the child says so and keeps its telemetry.

    Speaking gRPC there would hang the child, or break the parent's connections.
    """
    output = launch(
        *("job_forks.py", "trains", "1"),
        OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{otlp_receiver.grpc_port}",
        OTEL_EXPORTER_OTLP_PROTOCOL="grpc",
    ).output
    assert float(output.partition("slowest ")[2].split()[0]) < 5
    assert output.count("gRPC does not survive a fork") == 1
    child_run, parent_run = sorted(launch.runs, key=lambda run: run.name)
    (child,) = launch.records(child_run).values()
    (parent,) = launch.records(parent_run).values()
    assert (parent.progress.samples, child.progress.samples) == (4, 3)
    assert newest(otlp_receiver, "costlens.samples") == {f"{parent.run.id}/1/0": 4}
    assert sum(part.exports_failed for part in parent.telemetry.exports.values()) == 0
    assert [*(child_run / "telemetry").glob("metrics-1-0-*")], "to be sent later, by replay"
    assert parent.telemetry.faults == child.telemetry.faults == {}


@pytest.mark.parametrize("store", ["", "memory://runs"])
@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_no_thread_of_ours_imports_anything(launch: Launcher, store: str, protocol: str) -> None:
    """A module that is imported while the process forks is locked in the child for ever.

    So everything is imported on the calling thread, before the first thread starts.
    """
    assert launch.receiver is not None
    port = launch.receiver.grpc_port if protocol == "grpc" else launch.receiver.http_port
    output = launch(
        "job_imports.py",
        OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{port}",
        OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
        OTEL_LOGS_EXPORTER="otlp",
        COSTLENS_OTLP_FILE="1",
        COSTLENS_DIR=store or str(launch.folder),
        SLURM_JOB_ID="77",  # a thread asks for the job's times
    ).output
    assert "FINISHED" in output
    assert [line for line in output.splitlines() if line.startswith("IMPORT")] == []


def test_reading_prices_and_data_imports_nothing(launch: Launcher, tmp_path: Path) -> None:
    """Errands have threads of their own; what they read with is loaded before."""
    book = tmp_path / "prices.toml"
    book.write_text('version = 1\ncurrency = "USD"\nprice = []')
    for url in ("bundled", str(book), "memory://none/prices.toml"):
        output = launch(
            "job_imports.py",
            COSTLENS_PRICE_BOOK=url,
            COSTLENS_DATASET_FILES=f"{tmp_path}/*.toml,memory://none/*.bin",
            COSTLENS_ESTIMATE_FLOPS="1",
            COSTLENS_SUMMARY="0",
        ).output
        assert "FINISHED" in output
        assert [line for line in output.splitlines() if line.startswith("IMPORT")] == []


def test_a_later_attempt_imports_nothing_either(launch: Launcher) -> None:
    """Rank 0 then reads the attempts before, and judges them: with what is loaded already."""
    for _ in range(2):
        output = launch("job_imports.py", COSTLENS_RUN_ID="again", COSTLENS_SUMMARY="0").output
    (run,) = launch.runs
    assert launch.records(run)[2, 0].gang.num_restarts == 1
    assert "FINISHED" in output
    assert [line for line in output.splitlines() if line.startswith("IMPORT")] == []


def check_sent_once(receiver: OtlpReceiver) -> None:
    """Check that no span and no export of metrics came twice."""
    spans = [(span.proto.trace_id, span.proto.span_id) for span in receiver.spans()]
    assert len(spans) == len({*spans})
    bodies = [request.body for request in receiver.requests]
    assert len(bodies) == len({*bodies})
