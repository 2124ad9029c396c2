"""One run at a glance: is it healthy, does it learn, what does it cost."""

from __future__ import annotations

from dataclasses import replace

from grafana.dashboard import Dashboard
from grafana.panel import Row
from grafana.panels import checkpoints, events, findings, health, money, progress, traces
from grafana.settings import SETTINGS

__all__ = ["RUN"]

RUN = Dashboard(
    SETTINGS.dashboards.run,
    "costlens: run overview",
    "Is this run healthy, does it learn, and what does it cost?",
    (
        Row(
            "At a glance",
            (
                health.DONE,
                health.REMAINING,
                money.RUN_COST,
                money.HOURLY,
                money.TOKEN_PRICES,
                money.BUDGET,
            ),
        ),
        Row("Findings", (findings.SAVINGS, findings.OPEN)),
        Row(
            "Health",
            (
                health.STATES,
                health.RUN_ALERTS,
                *(
                    replace(panel, width=6)
                    for panel in (
                        health.HEARTBEAT,
                        health.STALL,
                        health.OPEN_PHASE,
                        health.RANKS_REPORTING,
                    )
                ),
            ),
        ),
        Row(
            "Progress",
            (
                progress.LOSS,
                progress.GRADIENTS,
                progress.LEARNING_RATE,
                progress.QUALITY,
                progress.NONFINITE,
                health.STEP,
                progress.SKIPPED,
                progress.LOSS_SCALE,
                health.RESTARTS,
            ),
        ),
        Row(
            "Throughput",
            (
                progress.TOKENS,
                progress.SAMPLES,
                progress.STEPS,
                progress.ITERATION_TIME,
                progress.PADDING,
                progress.MFU,
            ),
        ),
        Row("Money", (money.GOODPUT, money.UNIT_COSTS, checkpoints.UNSAVED_COST)),
        Row("Story", (events.EVENTS, traces.MARKERS, traces.PERIODS, traces.BAD_SPANS)),
    ),
)
