"""The dashboards: which questions belong together, and in which order they are asked."""

from __future__ import annotations

from grafana.dashboards.bottleneck import BOTTLENECK
from grafana.dashboards.cost import COST
from grafana.dashboards.hardware import HARDWARE
from grafana.dashboards.reliability import RELIABILITY
from grafana.dashboards.run import RUN
from grafana.dashboards.runs import RUNS

__all__ = ["DASHBOARDS"]

DASHBOARDS = (RUNS, RUN, BOTTLENECK, HARDWARE, COST, RELIABILITY)
"""All of them, in the order of an investigation."""
