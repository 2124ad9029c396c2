"""One part that fails does not stop the others, and no failure feeds on itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import collectors
from tests.faults.jobs import Job
from tests.fixtures_otlp import OtlpReceiver


def test_one_failing_entry_leaves_the_other_metrics_flowing(
    otlp_receiver: OtlpReceiver, tmp_path: Path
) -> None:
    """C101: steps, tokens and cost arrive, with one warning, and the faults are counted."""
    job = Job(
        tmp_path, "job_catalogue.py", OTEL_EXPORTER_OTLP_ENDPOINT=otlp_receiver.endpoint
    ).end()
    assert job.code == 0
    newest = {point.name: point.value for point in otlp_receiver.points()}
    assert newest["costlens.iterations"] == 30
    assert newest["costlens.tokens"] == 3000
    assert newest["costlens.cost"] > 0
    assert "costlens.run.info" not in newest
    faults = job.record.telemetry.faults
    assert {*faults} == {"export.catalog"}
    assert faults["export.catalog"] > 1
    told = [point.value for point in otlp_receiver.points("costlens.telemetry.faults")]
    assert 0 < max(told) <= faults["export.catalog"]
    assert [event["error_type"] for event in job.named("costlens.fault")] == ["OSError"]


@pytest.mark.slow
def test_a_dead_collector_makes_no_loop_of_log_lines(tmp_path: Path) -> None:
    """C102: the root logger at DEBUG, logs exported, nobody there, 5 s: no line breeds another.

    The user's own line reaches the console; of costlens's few none is about itself twice, and none
    of the SDK's is seen at all.
    """
    with collectors.refusing() as port:
        job = Job(
            tmp_path,
            "job_log.py",
            "5",
            OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{port}",
            OTEL_LOGS_EXPORTER="otlp",
        ).end()
    assert job.code == 0
    assert [line for line in job.err if "the line of the user" in line] == [
        "WARNING:user:the line of the user"
    ]
    assert [event["event"] for event in job.events] == [
        "costlens.export.failed",
        "costlens.export.lost",
    ]
    assert len(job.err) == 3, "root's console has nothing of urllib3's or the SDK's"
    # The line that says that exports fail, at most: fifty windows have added no others.
    assert job.record.telemetry.exports["logs"].items_dropped <= 1
    assert job.record.telemetry.faults == {}


@pytest.mark.slow
def test_the_standard_switch_leaves_a_fit_alone(
    otlp_receiver: OtlpReceiver, tmp_path: Path
) -> None:
    """C103: OTEL_SDK_DISABLED=true: five steps that log; no recursion, no network, a record."""
    job = Job(
        tmp_path,
        "job_offline.py",
        OTEL_SDK_DISABLED="true",
        OTEL_EXPORTER_OTLP_ENDPOINT=otlp_receiver.endpoint,
        OTEL_LOGS_EXPORTER="otlp",
    ).end()
    assert job.code == 0
    assert sum(line.startswith("WARNING:user:step") for line in job.err) == 5
    assert not [line for line in job.out if line.startswith("NETWORK")]
    assert otlp_receiver.requests == []
    assert job.record.progress.optimizer_steps == 5
    assert job.record.telemetry.exports == {}
    assert job.record.telemetry.faults == {}
