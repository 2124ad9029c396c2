"""The metric catalogue as dashboards and alerts know it.

A change here is a change for their users.
"""

from __future__ import annotations

import subprocess
import sys

from costlens.export.catalog import MAX_SERIES, METRICS

# Renaming one needs an alias for a release: dashboards, alerts and recorded data go by these.
CHECKPOINTS = (
    "costlens.checkpoint.failure.rate",
    "costlens.checkpoint.interval",
    "costlens.checkpoint.retries",
    "costlens.checkpoint.saves",
    "costlens.checkpoint.size",
    "costlens.checkpoint.stall.time",
    "costlens.checkpoint.step",
    "costlens.checkpoint.write.time",
    "costlens.unsaved.cost",
    "costlens.unsaved.time",
)
NAMES = {
    "container.cpu.time",
    "container.memory.available",
    "container.memory.usage",
    "costlens.budget.amount",
    "costlens.budget.spent.ratio",
    *CHECKPOINTS,
    "costlens.container.cpu.limit",
    "costlens.container.cpu.periods",
    "costlens.container.cpu.throttled.time",
    "costlens.cost",
    "costlens.cost.rate",
    "costlens.dataset.io",
    "costlens.dataset.read.duration",
    "costlens.dataset.read.errors",
    "costlens.energy.cost",
    "costlens.evaluation.batches",
    "costlens.finding.cost.rate",
    "costlens.finding.open",
    "costlens.grad.norm",
    "costlens.heartbeat.time",
    "costlens.infiniband.io",
    "costlens.iteration.duration",
    "costlens.iterations",
    "costlens.learning_rate",
    "costlens.loader.cpu.time",
    "costlens.loader.memory.usage",
    "costlens.loader.workers",
    "costlens.loss",
    "costlens.mfu.ratio",
    "costlens.micro_batches",
    "costlens.node.cpus",
    "costlens.nonfinite.events",
    "costlens.phase.open.age",
    "costlens.phase.time",
    "costlens.precision.loss_scale",
    "costlens.precision.skipped.time",
    "costlens.quality",
    "costlens.queue.deferral",
    "costlens.queue.wait",
    "costlens.record.failures",
    "costlens.restart_loop",
    "costlens.restarts",
    "costlens.run.info",
    "costlens.run.cost",
    "costlens.run.goodput.ratio",
    "costlens.run.unit.cost",
    "costlens.run.ranks",
    "costlens.run.steps",
    "costlens.run.time",
    "costlens.run.tokens",
    "costlens.run.ranks.reporting",
    "costlens.run.state",
    "costlens.samples",
    "costlens.stall.age",
    "costlens.startup.first_step",
    "costlens.startup.gang_wait",
    "costlens.step.current",
    "costlens.step.planned",
    "costlens.steps",
    "costlens.telemetry.dropped",
    "costlens.telemetry.exports",
    "costlens.telemetry.faults",
    "costlens.telemetry.overhead.time",
    "costlens.tokens",
    "process.cpu.time",
    "process.disk.io",
    "process.memory.usage",
    "system.cpu.time",
    "system.disk.io",
    "system.memory.limit",
    "system.memory.usage",
    "system.network.io",
}
# The devices.
NAMES |= {
    "costlens.gpu.activity.ratio",
    "costlens.gpu.clock.frequency",
    "costlens.gpu.nvlink.io",
    "costlens.gpu.power.limit",
    "costlens.gpu.state",
    "costlens.gpu.throttle.time",
    "hw.energy",
    "hw.errors",
    "hw.gpu.io",
    "hw.gpu.memory.limit",
    "hw.gpu.memory.usage",
    "hw.gpu.utilization",
    "hw.power",
    "hw.temperature",
}
# UCUM; what stands in braces is for people and is no unit.
UNITS = {"", "1", "s", "By", "W", "J", "Cel", "Hz", "{currency}", "{currency}/h", "{failure}/h"}
# Ratios that OpenTelemetry named.
OTHERS_RATIOS = {"hw.gpu.utilization"}


def test_names_are_frozen() -> None:
    """The metric names are exactly these, each once."""
    assert sorted(metric.name for metric in METRICS) == sorted(NAMES)


def test_every_metric_says_what_it_is() -> None:
    """C148.

    Each has a description of one sentence and a unit of a known kind; ratios are named so.
    """
    for metric in METRICS:
        assert metric.description.endswith("."), metric.name
        assert metric.description[0].isupper() or metric.description[0].isdigit(), metric.name
        is_count = metric.unit.startswith("{") and metric.unit.endswith("}")
        assert is_count or metric.unit in UNITS, metric.name
        is_ratio = metric.name.endswith(".ratio") or metric.name in OTHERS_RATIOS
        assert (metric.unit == "1") == is_ratio, metric.name


def test_units_are_not_in_names() -> None:
    """A unit in a name would come twice after translation: costlens_x_seconds_seconds."""
    words = {"seconds", "second", "bytes", "total", "ratio", "usd", "eur", "count", "sum", "bucket"}
    for metric in METRICS:
        if not metric.name.endswith(".ratio"):
            assert words.isdisjoint(metric.name.replace(".", "_").split("_")), metric.name


def test_the_catalogue_is_bounded() -> None:
    """One rank can never have more than 300 series, whatever it is given (law 5, C095)."""
    assert sum(metric.max_series for metric in METRICS) <= MAX_SERIES


def test_the_catalogue_loads_without_opentelemetry() -> None:
    """Docs and dashboards read the catalogue where neither OpenTelemetry nor torch is wanted."""
    program = (
        "import sys, costlens.export.catalog\n"
        "print([m for m in ('opentelemetry', 'torch', 'psutil', 'requests') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert result.stdout.strip() == "[]"
