"""A back-end that is slow, goes away and comes back, under a real loop."""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path

import pytest

from tests.faults.collectors import Gateway
from tests.faults.jobs import Job
from tests.fixtures_otlp import OtlpReceiver


def newest(receiver: OtlpReceiver, name: str, **attributes: str) -> float:
    """Return the newest value of a metric with these attributes."""
    return [
        point.value
        for point in receiver.points(name)
        if attributes.items() <= {k: str(v) for k, v in point.attributes.items()}.items()
    ][-1]


@pytest.mark.timing
def test_a_slow_backend_does_not_slow_the_loop(otlp_receiver: OtlpReceiver, tmp_path: Path) -> None:
    """C096: replies after 3 s, 200 steps of 10 ms: p99 stays below twice the undisturbed p99.

    Undisturbed blocks stand between the slow ones, in the same loop. Windows of 20 ms fill the
    queues, which drop their oldest: that is counted, and seen once the back-end is well again.
    """
    control = otlp_receiver._control
    job = Job(
        tmp_path,
        "job_steps.py",
        *(control, "4", "100"),
        OTEL_EXPORTER_OTLP_ENDPOINT=otlp_receiver.endpoint,
        COSTLENS_WINDOW_S="0.02",
    ).end()
    assert job.code == 0
    steps_ms = json.loads(job.out[0])
    p99_ms = {kind: statistics.quantiles(steps, n=100)[98] for kind, steps in steps_ms.items()}
    assert p99_ms["slow"] < 2 * p99_ms["undisturbed"], p99_ms
    health = job.record.telemetry.exports["metrics"]
    assert health.items_dropped > 0
    assert newest(otlp_receiver, "costlens.telemetry.dropped", **{"costlens.drop.place": "metrics"})
    # Counters are cumulative: what was dropped is in what came later.
    assert newest(otlp_receiver, "costlens.samples") == job.record.progress.samples == 1600


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_a_collector_that_comes_and_goes_gets_everything(
    otlp_receiver: OtlpReceiver, tmp_path: Path, protocol: str
) -> None:
    """Down at the start, up, down in mid-run, up: telemetry recovers by itself, nothing is lost."""
    is_grpc = protocol == "grpc"
    target = otlp_receiver.grpc_port if is_grpc else otlp_receiver.http_port
    stop = tmp_path / "stop"
    with Gateway(target) as gateway:
        job = Job(
            tmp_path / "runs",
            *("job_until.py", str(stop)),
            OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{gateway.port}",
            OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
        )
        try:
            for _ in range(2):
                time.sleep(0.8)  # the loop trains on, and windows close, while nobody listens
                gateway.open()
                num = len(otlp_receiver.requests)
                otlp_receiver.wait_for(
                    lambda seen, num=num: (
                        {"traces", "metrics"} <= {r.signal for r in seen.requests[num:]}
                    ),
                    20,
                )
                gateway.close()
            gateway.open()
        finally:
            stop.touch()
            ended = job.end()
    assert ended.code == 0
    record = ended.record
    health = record.telemetry.exports
    assert {part.items_dropped for part in health.values()} == {0}
    assert ended.named("costlens.export.lost") == []
    samples = [point.value for point in otlp_receiver.points("costlens.samples")]
    assert samples == sorted(samples)
    assert samples[-1] == record.progress.samples
    # Every window of every period arrived: the periods' own counts add up to the run's.
    # A batch whose answer went down with the connection is sent again: the same spans once more.
    periods = {
        (span.proto.trace_id, span.proto.span_id): span.attributes.get("costlens.samples", 0)
        for span in otlp_receiver.spans()
        if span.proto.name == "costlens.rank.period"
    }
    num_samples = sum(periods.values())
    assert num_samples == record.progress.samples
