"""Forks while a run records and exports: no child hangs, and nothing is sent twice."""

from __future__ import annotations

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
@pytest.mark.parametrize(("kind", "num_children"), [("idle", 200), ("calls", 50)])
def test_children_that_do_not_train_leave_no_trace(
    launch: Launcher, otlp_receiver: OtlpReceiver, kind: str, num_children: int
) -> None:
    """200 forks under a running export, and 50 that use the run: all end, none counts or sends."""
    # Slow answers: most forks meet an export that is under way.
    otlp_receiver.fault(delay_s=0.02)
    launch("job_forks.py", kind, str(num_children), COSTLENS_WINDOW_S="0.02")
    record = the_record(launch)
    assert record.progress.samples == num_children + 3
    assert record.telemetry.faults == {}
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


def check_sent_once(receiver: OtlpReceiver) -> None:
    """Check that no span and no export of metrics came twice."""
    spans = [(span.proto.trace_id, span.proto.span_id) for span in receiver.spans()]
    assert len(spans) == len({*spans})
    bodies = [request.body for request in receiver.requests]
    assert len(bodies) == len({*bodies})
