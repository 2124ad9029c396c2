"""Why is it slow, and which rank is it."""

from __future__ import annotations

from grafana.dashboard import Dashboard
from grafana.panel import Row
from grafana.panels import events, findings, host, phases, progress, traces
from grafana.settings import SETTINGS

__all__ = ["BOTTLENECK"]

BOTTLENECK = Dashboard(
    SETTINGS.dashboards.bottleneck,
    "costlens: bottleneck",
    "Why is this run slow, and which rank holds the others up?",
    (
        Row("Findings", (findings.SAVINGS, findings.OPEN)),
        Row("Phases", (phases.PHASES, phases.PHASE_PER_ITERATION)),
        Row("Data", (phases.DATA_WAIT, phases.WAIT_BY_RANK, phases.TRANSFER)),
        Row(
            "Ranks",
            (
                phases.OWN_TIME,
                phases.WAITS_FOR_OTHERS,
                phases.HOSTS,
                phases.SLOWDOWN,
                host.LOADERS,
                host.LOADER_CPU,
            ),
        ),
        Row("Iterations", (progress.ITERATIONS_HEAT, traces.PHASES_BY_TIME, traces.SLOWEST)),
        Row("Traces by rank", (traces.BY_RANK, traces.SLOWEST_BY_RANK)),
        Row("Storage", (host.DATASET, host.READS, host.READ_ERRORS)),
        Row("Stalls", (events.STALL_EVENTS,)),
    ),
)
