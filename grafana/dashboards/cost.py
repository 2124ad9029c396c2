"""What is wasted, and when is the budget gone."""

from __future__ import annotations

from grafana.dashboard import Dashboard
from grafana.panel import Row
from grafana.panels import money
from grafana.settings import SETTINGS

__all__ = ["COST"]

COST = Dashboard(
    SETTINGS.dashboards.cost,
    "costlens: cost and budget",
    "What does this run cost, what of it is wasted, and when is the budget gone?",
    (
        Row(
            "At a glance",
            (
                money.RUN_COST,
                money.HOURLY,
                money.TOKEN_PRICES,
                money.BUDGET,
                money.BUDGET_LEFT,
                money.FORECAST,
            ),
        ),
        Row("Budget", (money.BURN, money.BURN_RATE, money.COST_BY_PHASE)),
        Row("Waste", (money.SPENT_BY_PHASE, money.WASTE, money.GOODPUT)),
        Row("Per unit", (money.COST_PER_TOKEN, money.UNIT_COSTS, money.RUN_STEPS)),
        Row("Between runs", (money.COMPARED,)),
        Row("Inputs", (money.PRICES, money.CURRENCIES, money.ENERGY_COST)),
    ),
    since="now-24h",
)
