"""Checkpoints as metrics and as traces of their own."""

from __future__ import annotations

import pytest

from costlens.core.checkpoint_records import CheckpointsPart, IntervalPart, SaveNote
from costlens.core.clock import NS_PER_S
from costlens.export.catalog import read_points
from costlens.export.catalog_checkpoints import CHECKPOINT_METRICS
from costlens.export.otel_ids import marker_ids
from tests.unit.export.rehearsal import MONO_NS, PRICE, WALL_NS, Rehearsal
from tests.unit.export.test_otel_traces import Tracing, ids, seconds

INTERVAL = IntervalPart(
    interval_s=300.0,
    optimum_s=280.0,
    rail="overhead",
    worst_loss_s=360.0,
    is_loss_kept=True,
    failure_rate_per_s=1 / 36_000,
    stall_s=1.0,
    write_s=59.0,
    slowdown=0.0,
)


def values(run: Rehearsal) -> dict[str, float]:
    """Return the points of all metrics on checkpoints, by name and outcome."""
    snapshot = run.look()
    found = {}
    for metric in CHECKPOINT_METRICS:
        for attributes, value in read_points(metric, snapshot):
            outcome = attributes.get("costlens.checkpoint.outcome")
            assert isinstance(value, (int, float))
            found[metric.name if outcome is None else f"{metric.name}/{outcome}"] = value
    return found


def test_a_run_without_checkpoints_tells_nothing_of_them() -> None:
    """Unknown is not zero: no point of any."""
    assert values(Rehearsal()) == {}


def test_counters_begin_at_zero_and_work_is_unsaved_from_the_start() -> None:
    """Before the first save all work since the start would be lost, at the price of an hour."""
    run = Rehearsal(price=PRICE)
    run.state.checkpoints = CheckpointsPart(url="x")
    run.steps(50)
    found = values(run)
    elapsed_s = (run.now_ns - MONO_NS) / NS_PER_S
    assert found["costlens.checkpoint.saves/failed"] == 0
    assert found["costlens.unsaved.time"] == pytest.approx(elapsed_s)
    per_hour = float(PRICE.amount) * float(PRICE.share)
    assert found["costlens.unsaved.cost"] == pytest.approx(per_hour * elapsed_s / 3600)
    assert "costlens.checkpoint.step" not in found


def test_what_is_saved_is_no_longer_at_stake() -> None:
    """The newest checkpoint is told with its step, and only what came after it is unsaved."""
    run = Rehearsal()
    run.steps(50)
    saved_s = (WALL_NS + run.now_ns - MONO_NS) / NS_PER_S
    run.state.checkpoints = CheckpointsPart(
        url="x", num_saved=2, num_skipped=1, last_step=50, last_time=saved_s, interval=INTERVAL
    )
    run.steps(7)
    found = values(run)
    assert found["costlens.checkpoint.saves/saved"] == 2
    assert found["costlens.checkpoint.saves/skipped"] == 1
    assert found["costlens.checkpoint.step"] == 50
    assert found["costlens.unsaved.time"] == pytest.approx(7.0, abs=0.1)
    assert found["costlens.checkpoint.interval"] == 300
    assert found["costlens.checkpoint.failure.rate"] == pytest.approx(0.1)


def note(step: int, error_type: str | None = None) -> SaveNote:
    """Return a save that stalled for 2 s after 10 s, and was written in 30."""
    return SaveNote(
        name=f"step-{step}",
        step=step,
        kind="interval",
        start_ns=MONO_NS + 10 * NS_PER_S,
        stall_ns=2 * NS_PER_S,
        write_ns=30 * NS_PER_S,
        num_bytes=1000,
        error_type=error_type,
    )


def test_a_save_is_a_trace_of_its_own() -> None:
    """From the stall until it is durable, with both below it, linked to the run's marker; once."""
    run = Rehearsal()
    tracing = Tracing(run).start()
    run.state.checkpoints = CheckpointsPart(url="x", interval=INTERVAL)
    run.state.saves.append(note(50))
    tracing.windows(2)
    root = tracing.one("costlens.checkpoint")
    assert seconds(root) == (10, 42)
    assert root.parent is None
    assert [(link.context.trace_id, link.context.span_id) for link in root.links] == [
        marker_ids("run-a", 1)
    ]
    assert root.attributes is not None
    assert root.attributes["costlens.checkpoint.rail"] == "overhead"
    assert root.attributes["costlens.step.current"] == 50
    stall, write = (
        tracing.one("costlens.checkpoint.stall"),
        tracing.one("costlens.checkpoint.write"),
    )
    assert (seconds(stall), seconds(write)) == ((10, 12), (12, 42))
    for child in (stall, write):
        assert child.parent is not None
        assert (child.parent.trace_id, child.parent.span_id) == ids(root)


def test_a_failed_save_is_an_error() -> None:
    """The kind of the error stands on its span."""
    run = Rehearsal()
    tracing = Tracing(run).start()
    run.state.saves.append(note(50, "StorageError"))
    tracing.windows(1)
    root = tracing.one("costlens.checkpoint")
    assert root.attributes is not None
    assert root.attributes["error.type"] == "StorageError"
    assert not root.status.is_ok
