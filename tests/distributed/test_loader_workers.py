"""Loader workers, forked and spawned: they read batches and watch nothing."""

from __future__ import annotations

import pytest

from tests.distributed.launching import Launcher
from tests.fixtures_otlp import OtlpReceiver


@pytest.mark.slow
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_are_inert(launch: Launcher, otlp_receiver: OtlpReceiver, context: str) -> None:
    """C132: workers that carry the run, or start one, make no thread, no run, no series, no record.

    Two persistent workers read ten rows in each of two epochs: 20 samples, counted once.
    """
    (counted,) = launch("job_loader.py", context).counted
    assert len(counted["workers"]) == 2
    assert (counted["threads"], counted["runs"], counted["samples"]) == (0, 0, 20)
    (run,) = launch.runs
    (record,) = launch.records(run).values()
    assert record.rank.pid == counted["pid"] not in counted["workers"]
    assert (record.progress.samples, record.progress.iterations) == (20, 10)
    assert record.telemetry.faults == {}
    resources = [item.resource for item in (*otlp_receiver.spans(), *otlp_receiver.metrics())]
    assert {each["process.pid"] for each in resources} == {counted["pid"]}
    newest = {p.attributes["costlens.rank"]: p for p in otlp_receiver.points("costlens.samples")}
    assert {rank: point.value for rank, point in newest.items()} == {0: 20}
