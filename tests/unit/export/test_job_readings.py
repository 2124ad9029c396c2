"""What metrics, traces and the console say of a rank's job and its wait in the queue."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from costlens.account.ledger import merge
from costlens.core.clock import NS_PER_S
from costlens.core.job_records import JobPart
from costlens.export.catalog import METRICS, read_points
from costlens.export.console import render
from costlens.export.otel_ids import marker_ids
from tests.unit.account.build import START, make_record
from tests.unit.export.rehearsal import WALL_NS, Rehearsal
from tests.unit.export.test_otel_traces import Tracing, ids

WALL_S = WALL_NS / NS_PER_S
JOB = JobPart(
    scheduler="slurm",
    job_id="77",
    queue="train",
    node="vm",
    submit_time=WALL_S - 1000,
    eligible_time=WALL_S - 400,
    start_time=WALL_S - 100,
    is_allocation_owner=True,
)
POD = JobPart(scheduler="kubernetes", pod="train-0", namespace="research", region="eu-west-1")


def rehearse(job: JobPart | None, rank: int = 0) -> Rehearsal:
    """Return a run of a rank in this job."""
    run = Rehearsal(rank=rank, world_size=2)
    run.state.job = job
    return run


def read(run: Rehearsal, name: str) -> list[tuple[dict[str, str | int], object]]:
    """Return the points of a metric, without run id and rank."""
    (metric,) = (metric for metric in METRICS if metric.name == name)
    points = read_points(metric, run.look())
    identity = {"costlens.run.id", "costlens.rank"}
    return [
        ({k: v for k, v in found.items() if k not in identity}, value) for found, value in points
    ]


def test_the_wait_is_told_by_rank_0_of_the_launch_that_waited() -> None:
    """C143, C025: a wait of 300 s after a deferral of 600 s, once for the job."""
    assert read(rehearse(JOB), "costlens.queue.wait") == [({}, 300)]
    assert read(rehearse(JOB), "costlens.queue.deferral") == [({}, 600)]
    others = [
        rehearse(JOB, rank=1),
        rehearse(None),
        rehearse(JOB.model_copy(update={"is_allocation_owner": False})),
        rehearse(JOB.model_copy(update={"is_allocation_owner": None})),
        rehearse(JOB.model_copy(update={"start_time": None})),
    ]
    for run in others:
        assert read(run, "costlens.queue.wait") == []
        assert read(run, "costlens.queue.deferral") == []


def test_the_rank_is_joined_to_node_pod_and_job() -> None:
    """`costlens_run_info` leads from a rank to where it runs; what is unknown is left out."""
    ((slurm, _),) = read(rehearse(JOB), "costlens.run.info")
    assert slurm["costlens.scheduler"] == "slurm"
    assert (slurm["costlens.job.id"], slurm["costlens.job.queue"]) == ("77", "train")
    assert slurm["costlens.job.node"] == "vm"
    ((pod, _),) = read(rehearse(POD, rank=1), "costlens.run.info")
    assert (pod["k8s.pod.name"], pod["k8s.namespace.name"]) == ("train-0", "research")
    assert pod["cloud.region"] == "eu-west-1"
    assert "costlens.job.id" not in pod
    ((bare, _),) = read(rehearse(None), "costlens.run.info")
    assert not [name for name in bare if name.startswith(("k8s.", "cloud.", "costlens.job"))]


def test_the_wait_is_a_span_before_start_up_in_the_trace_of_the_marker() -> None:
    """It ends where the allocation began, by the scheduler's clock, and says so."""
    tracing = Tracing(rehearse(JOB)).start()
    span, marker = tracing.one("costlens.queue"), tracing.one("costlens.run")
    assert ids(span)[0] == ids(marker)[0] == marker_ids("run-a", 1).trace_id
    assert span.parent is not None
    assert span.parent.span_id == ids(marker)[1]
    times = [(at or 0) / NS_PER_S - WALL_S for at in (span.start_time, span.end_time)]
    assert times == pytest.approx([-1000, -100])
    attributes = dict(span.attributes or {})
    assert attributes["costlens.queue.wait"] == 300
    assert attributes["costlens.queue.deferral"] == 600
    assert attributes["costlens.clock"] == "scheduler"
    assert "costlens.clock.skew" not in attributes
    assert attributes["costlens.job.id"] == "77"


def test_every_period_of_rank_0_carries_the_wait() -> None:
    """One window answers time, money and queue at once; other ranks do not repeat it."""
    (period,) = Tracing(rehearse(JOB)).start().windows(1).end().named("costlens.rank.period")
    assert (period.attributes or {})["costlens.queue.wait"] == 300
    (period,) = Tracing(rehearse(JOB, 1)).start().windows(1).end().named("costlens.rank.period")
    assert "costlens.queue.wait" not in (period.attributes or {})


def test_a_scheduler_that_answers_late_gets_its_span_with_a_later_window() -> None:
    """Once, whenever the times are known; contradicting clocks are told."""
    run = rehearse(JOB.model_copy(update={"start_time": None}))
    tracing = Tracing(run).start().windows(1)
    assert tracing.named("costlens.queue") == []
    run.state.job = JOB.model_copy(update={"clock_skew_s": 30.0, "eligible_time": WALL_S - 50})
    tracing.windows(3).end()
    attributes = dict(tracing.one("costlens.queue").attributes or {})
    assert attributes["costlens.clock.skew"] == 30
    assert (attributes["costlens.queue.wait"], attributes["error.type"]) == (0, "clock")


@pytest.mark.parametrize(("job", "rank"), [(None, 0), (JOB, 1), (POD, 0)])
def test_without_a_wait_of_its_own_a_rank_writes_no_span(job: JobPart | None, rank: int) -> None:
    """Outside a scheduler, on other ranks, and where no times are told."""
    tracing = Tracing(rehearse(job, rank)).start().windows(2).end()
    assert tracing.named("costlens.queue") == []


def page(job: JobPart | None) -> str:
    """Return the report of a run in this job."""
    merged = merge([make_record(time_s={"compute": 10.0}, job=job)], now=START + 60)
    stream = io.StringIO()
    render(merged, Console(file=stream, width=100), now=START + 60)
    return stream.getvalue()


def test_the_report_shows_job_and_wait() -> None:
    """One line each; nothing outside a scheduler."""
    shown = page(JOB)
    assert "slurm 77 · queue train" in shown
    assert "5m 00s for resources · 10m 00s deferred before" in shown
    assert "research" in page(POD)
    assert "Job" not in page(None)
