"""What would a crash cost, and can one trust the numbers."""

from __future__ import annotations

from grafana.dashboard import Dashboard
from grafana.panel import Row
from grafana.panels import checkpoints, events, health, money, telemetry, traces
from grafana.settings import SETTINGS

__all__ = ["RELIABILITY"]

RELIABILITY = Dashboard(
    SETTINGS.dashboards.reliability,
    "costlens: reliability and telemetry",
    "What would a crash cost now, and can one trust these numbers?",
    (
        Row("At risk", (checkpoints.UNSAVED_TIME, checkpoints.UNSAVED_COST, health.STEP)),
        Row("Saves", (checkpoints.SAVES, checkpoints.STALLS, checkpoints.WRITES)),
        Row("Store", (checkpoints.SIZE, checkpoints.RETRIES, checkpoints.FAILURE_RATE)),
        Row(
            "Single saves",
            (traces.CHECKPOINT_STALLS, events.STORE_EVENTS, traces.CHECKPOINT_TIMES),
        ),
        Row("Restarts", (health.RESTARTS, money.RUN_STEPS, health.RANKS_REPORTING)),
        Row("Telemetry", (telemetry.EXPORTS, telemetry.DROPPED, health.HEARTBEAT)),
        Row("costlens itself", (telemetry.OVERHEAD, telemetry.FAULTS, telemetry.RECORDS)),
        Row("Complaints", (events.EVENT_COUNTS,)),
    ),
)
