"""The metric catalogue: every metric costlens exports, one entry each.

Whatever carries metrics out of the process (OTLP, a host's meter provider) and whatever describes
them (docs, dashboards, alerts) reads this table; ``readings.py`` holds what an entry reads,
``metric.py`` what an entry is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from costlens.account.mfu import rank_mfu
from costlens.core.guard import faults
from costlens.core.phases import NAMES
from costlens.core.snapshot import Snapshot
from costlens.core.window import Histogram
from costlens.export import job_readings, readings
from costlens.export.catalog_checkpoints import CHECKPOINT_METRICS
from costlens.export.catalog_findings import FINDING_METRICS
from costlens.export.catalog_gpu import GPU_METRICS
from costlens.export.catalog_host import HOST_METRICS
from costlens.export.catalog_run import RUN_METRICS
from costlens.export.metric import NUM_OWN_VALUES, Kind, Metric
from costlens.export.readings import Attributes, Point, each, one

__all__ = ["MAX_SERIES", "METRICS", "NUM_OWN_VALUES", "Kind", "Metric", "read_points"]

MAX_SERIES = 300
"""Most series of one rank (CONTRIBUTING.md, law 5); a test adds up what the catalogue allows."""

RUN_ID = "costlens.run.id"
RANK = "costlens.rank"


def read_points(metric: Metric, snapshot: Snapshot) -> Iterator[Point]:
    """Yield the points of a metric with run id and rank, without what is unknown, NaN or infinite.

    An entry that fails yields nothing and counts as a fault: the other metrics keep flowing.
    """
    record = snapshot.record
    identity: Attributes = {RUN_ID: record.run.id, RANK: record.rank.rank}
    points: list[Point] | None = faults.call("export.catalog", lambda: list(metric.read(snapshot)))
    for attributes, value in points or ():
        if isinstance(value, Histogram) or math.isfinite(value):
            yield {**identity, **attributes}, value


_PHASES = {"costlens.phase": readings.OWN_PHASES}
_CURRENCY: Mapping[str, tuple[str, ...]] = {"costlens.cost.currency": ()}

METRICS: tuple[Metric, ...] = (
    # What the run is, and how it is doing.
    Metric(
        "costlens.run.info",
        "gauge",
        "",
        "Constant 1; its attributes say what the run is and where the rank runs.",
        readings.run_info,
        dict.fromkeys(readings.INFO, ()),
    ),
    Metric(
        "costlens.run.state",
        "updowncounter",
        "",
        "1 for the state the rank is in, or for how its attempt ended; 0 for all others.",
        each("costlens.state", readings.run_state),
        {"costlens.state": readings.STATES},
    ),
    Metric(
        "costlens.run.ranks",
        "gauge",
        "{rank}",
        "Ranks the job was launched with.",
        one(lambda s: s.record.rank.world_size),
    ),
    Metric(
        "costlens.run.ranks.reporting",
        "gauge",
        "{rank}",
        "Ranks that wrote their record not long ago, or ended by their own word; from rank 0.",
        one(lambda s: s.record.gang.num_reporting if s.record.gang else None),
    ),
    Metric(
        "costlens.restarts",
        "gauge",
        "{restart}",
        "Attempts of the run before this one; from rank 0.",
        one(lambda s: s.record.gang.num_restarts if s.record.gang else None),
    ),
    Metric(
        "costlens.restart_loop",
        "gauge",
        "{attempt}",
        "Attempts in a row that ended badly without getting further, until this one does; 0 where "
        "there is no such loop; from rank 0.",
        one(lambda s: s.record.gang.restart_loop if s.record.gang else None),
    ),
    Metric(
        "costlens.heartbeat.time",
        "gauge",
        "s",
        "Unix time at which these values were read.",
        one(lambda s: s.record.attempt.heartbeat_time),
    ),
    Metric(
        "costlens.phase.open.age",
        "gauge",
        "s",
        "How long the open phase has been open; 0 for phases that are not open.",
        each("costlens.phase", readings.open_ages),
        _PHASES,
    ),
    Metric(
        "costlens.stall.age",
        "gauge",
        "s",
        "How long the training thread has not moved, where that is a stall; 0 while it moves.",
        one(lambda s: s.record.stall.age_s if s.record.stall else 0.0),
    ),
    Metric(
        "costlens.queue.wait",
        "gauge",
        "s",
        "Time the job waited in its queue for resources and priority before this attempt.",
        one(job_readings.queue_wait),
    ),
    Metric(
        "costlens.queue.deferral",
        "gauge",
        "s",
        "Time before that in which a hold, a dependency or a begin time deferred the job.",
        one(job_readings.deferral),
    ),
    Metric(
        "costlens.startup.gang_wait",
        "gauge",
        "s",
        "How long this rank waited for the others to come, where that was seen.",
        one(lambda s: s.record.startup.gang_wait_s),
    ),
    Metric(
        "costlens.startup.first_step",
        "gauge",
        "s",
        "Process start to the end of the iteration that made the first optimizer step.",
        one(lambda s: s.record.startup.first_step_s),
    ),
    # Progress: counted, never derived.
    Metric(
        "costlens.iterations",
        "counter",
        "{iteration}",
        "Passes of the training loop.",
        one(lambda s: s.record.progress.iterations),
    ),
    Metric(
        "costlens.micro_batches",
        "counter",
        "{micro_batch}",
        "Forward and backward passes of training.",
        one(lambda s: s.record.progress.micro_batches),
    ),
    Metric(
        "costlens.steps",
        "counter",
        "{step}",
        "Optimizer updates: real ones changed parameters, a gradient scaler skipped the others.",
        each("costlens.step.outcome", readings.step_counts),
        {"costlens.step.outcome": ("real", "skipped")},
    ),
    Metric(
        "costlens.step.current",
        "gauge",
        "{step}",
        "Optimizer step reached, counted over all attempts where the loop knows it.",
        one(readings.current_step),
    ),
    Metric(
        "costlens.step.planned",
        "gauge",
        "{step}",
        "Optimizer steps the loop will make, where it knows.",
        one(lambda s: s.record.progress.total_steps),
    ),
    Metric(
        "costlens.samples",
        "counter",
        "{sample}",
        "Training samples of this rank.",
        one(lambda s: s.record.progress.samples),
    ),
    Metric(
        "costlens.tokens",
        "counter",
        "{token}",
        "Token positions (slots), non-padding tokens and tokens the loss was computed on; "
        "the kinds overlap and must not be added.",
        each("costlens.token.kind", readings.token_counts),
        {"costlens.token.kind": ("slots", "tokens", "loss")},
    ),
    Metric(
        "costlens.evaluation.batches",
        "counter",
        "{batch}",
        "Batches of evaluation loops.",
        each("costlens.stage", readings.evaluation_counts),
        {"costlens.stage": ("validation", "test")},
    ),
    # Where the time goes.
    Metric(
        "costlens.phase.time",
        "counter",
        "s",
        "Time of this rank per phase; every nanosecond belongs to exactly one.",
        each("costlens.phase", readings.phase_seconds),
        _PHASES,
    ),
    Metric(
        "costlens.iteration.duration",
        "histogram",
        "s",
        "Durations of iterations after the first, without saves and evaluation.",
        lambda s: [({}, s.histogram)],
    ),
    # What it costs.
    Metric(
        "costlens.cost",
        "counter",
        "{currency}",
        "Money this rank's time has cost in this attempt; currencies must not be added.",
        readings.cost_by_phase,
        {"costlens.phase": NAMES, **_CURRENCY},
    ),
    Metric(
        "costlens.cost.rate",
        "gauge",
        "{currency}/h",
        "Money an hour of this rank costs.",
        readings.cost_rate,
        _CURRENCY,
    ),
    Metric(
        "costlens.energy.cost",
        "counter",
        "{currency}",
        "Money for the energy of this rank's GPUs in this attempt; in no other cost.",
        readings.energy_cost,
        _CURRENCY,
    ),
    Metric(
        "costlens.mfu.ratio",
        "gauge",
        "1",
        "Work of the model over the peak of this rank's devices, where FLOPs and peak are known.",
        one(lambda s: rank_mfu(s.record).ratio),
    ),
    # What it computes in.
    Metric(
        "costlens.precision.loss_scale",
        "gauge",
        "",
        "What a gradient scaler multiplies gradients with; each skipped step halves it.",
        one(readings.loss_scale),
    ),
    Metric(
        "costlens.precision.skipped.time",
        "counter",
        "s",
        "Time of the iterations that led to optimizer steps a gradient scaler skipped.",
        one(lambda s: s.record.precision.skipped_s if s.record.precision else None),
    ),
    # How the model does.
    Metric(
        "costlens.loss",
        "gauge",
        "",
        "Newest finite loss of a stage.",
        each("costlens.stage", readings.loss_values),
        {"costlens.stage": ("train", "validation", "test")},
    ),
    Metric(
        "costlens.grad.norm",
        "gauge",
        "",
        "Newest finite norm of the gradients.",
        one(readings.gradient_norm),
    ),
    Metric(
        "costlens.learning_rate",
        "gauge",
        "",
        "Newest learning rate that was logged.",
        one(readings.learning_rate),
    ),
    Metric(
        "costlens.quality",
        "gauge",
        "",
        "Newest finite value of every quality metric, by the name it was logged under.",
        each("costlens.quality.name", readings.quality_values),
        {"costlens.quality.name": ()},
    ),
    Metric(
        "costlens.nonfinite.events",
        "counter",
        "{event}",
        "Logged values that were NaN or infinite.",
        each("costlens.nonfinite.source", readings.nonfinite_counts),
        {"costlens.nonfinite.source": readings.NONFINITE_SOURCES},
    ),
    # What watching costs and loses.
    Metric(
        "costlens.telemetry.overhead.time",
        "counter",
        "s",
        "CPU time of the thread that aggregates and exports.",
        one(lambda s: s.record.telemetry.overhead_s),
    ),
    Metric(
        "costlens.telemetry.faults",
        "counter",
        "{fault}",
        "Faults of costlens itself that were contained, by the part they happened in.",
        each("costlens.fault.place", readings.fault_counts),
        {"costlens.fault.place": readings.FAULT_PLACES},
    ),
    Metric(
        "costlens.telemetry.dropped",
        "counter",
        "{item}",
        "Iterations, spans, quality values and exported items that were dropped, by the limit or "
        "signal that dropped them.",
        each("costlens.drop.place", readings.drop_counts),
        {"costlens.drop.place": readings.DROP_PLACES},
    ),
    Metric(
        "costlens.telemetry.exports",
        "counter",
        "{export}",
        "Exports of each signal, by how they ended.",
        readings.export_counts,
        {
            "costlens.signal": readings.SIGNALS,
            "costlens.export.outcome": ("success", "failure"),
        },
    ),
    Metric(
        "costlens.record.failures",
        "counter",
        "{failure}",
        "Writes of the record that failed.",
        one(lambda s: s.record.telemetry.record_failures),
    ),
    # Why it is slow.
    *FINDING_METRICS,
    # Devices and host, under OpenTelemetry's own names where it has one.
    *RUN_METRICS,
    *GPU_METRICS,
    *HOST_METRICS,
    *CHECKPOINT_METRICS,
)
"""All metrics, in the order in which documentation lists them."""
