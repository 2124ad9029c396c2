"""The rules' own settings with times that a test can wait for."""

from __future__ import annotations

from dataclasses import replace

from grafana.alerts.render import scaled
from grafana.settings import SETTINGS

__all__ = ["SHORT", "WINDOW_S"]

WINDOW_S = 0.5
"""COSTLENS_WINDOW_S of the trainings that are judged by them."""

_FACTOR = 1 / 30
_SCALED = scaled(SETTINGS, _FACTOR)
# What costlens costs is the same for a window, however short: its share grows as windows shrink.
_OVERHEAD = SETTINGS.thresholds.overhead_ratio * SETTINGS.export_s / WINDOW_S

SHORT = replace(_SCALED, thresholds=replace(_SCALED.thresholds, overhead_ratio=_OVERHEAD))
"""Five minutes are ten seconds, and rules are evaluated once a second."""
