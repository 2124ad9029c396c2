"""All runs: which need attention, and where does the money go."""

from __future__ import annotations

from grafana.dashboard import Dashboard
from grafana.panel import Row
from grafana.panels import findings, fleet
from grafana.settings import SETTINGS

__all__ = ["RUNS"]

RUNS = Dashboard(
    SETTINGS.dashboards.runs,
    "costlens: runs",
    "Which runs need attention, and where does the money go?",
    (
        Row("Now", (fleet.NUM_RUNNING, fleet.NUM_RANKS, fleet.HOURLY, fleet.ALERTS)),
        Row("Runs", (fleet.RUNS_TABLE,)),
        Row("Money", (fleet.TEAMS, fleet.COST_RATE, fleet.GOODPUT)),
        Row("Findings", (findings.FLEET_SAVINGS,)),
        Row("Beginnings and ends", (fleet.QUEUES, fleet.ENDINGS, fleet.RESTART_LOOPS)),
    ),
    scope="runs",
    since="now-24h",
)
