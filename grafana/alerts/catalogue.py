"""All alerts and recording rules."""

from __future__ import annotations

from grafana.alerts import (
    bottleneck,
    checkpoints,
    dcgm,
    hardware,
    liveness,
    money,
    progress,
    quality,
    recording,
    telemetry,
)
from grafana.alerts.model import Alert

__all__ = ["ALERTS", "GROUPS", "RECORDINGS"]

ALERTS: tuple[Alert, ...] = (
    *liveness.ALERTS,
    *progress.ALERTS,
    *bottleneck.ALERTS,
    *hardware.ALERTS,
    *checkpoints.ALERTS,
    *quality.ALERTS,
    *money.ALERTS,
    *telemetry.ALERTS,
)
RECORDINGS = (*dcgm.DCGM_RECORDINGS, *recording.RECORDINGS)
"""In the order in which they are evaluated."""

GROUPS = {
    "costlens-dcgm": dcgm.DCGM_RECORDINGS,
    "costlens-recording": recording.RECORDINGS,
}
"""Groups of recording rules; the second one reads what the first has recorded."""
