"""What it costs, what is wasted, and when the budget is gone. Currencies are never added."""

from __future__ import annotations

from costlens.account.goodput import PRODUCTIVE_PHASES
from grafana.names import select
from grafana.panel import Column, Panel, prom
from grafana.queries import (
    MILLION,
    RANK,
    RUN,
    THE_RANKS,
    THE_RUN,
    newest,
    of_team,
    over_range,
    rate,
)
from grafana.settings import SETTINGS

__all__ = [
    "BUDGET",
    "BUDGET_LEFT",
    "BURN",
    "BURN_RATE",
    "COMPARED",
    "COST_BY_PHASE",
    "COST_PER_TOKEN",
    "CURRENCIES",
    "ENERGY_COST",
    "FORECAST",
    "GOODPUT",
    "HOURLY",
    "PRICES",
    "RUN_COST",
    "RUN_STEPS",
    "SPENT_BY_PHASE",
    "TOKEN_PRICES",
    "UNIT_COSTS",
    "WASTE",
]

_CURRENCY = "costlens_cost_currency"
_PER_HOUR = "3600"
_PRODUCTIVE = "|".join(phase.name.lower() for phase in PRODUCTIVE_PHASES)
_TOKENS = 'costlens_token_kind="tokens"'
_PER_TOKEN = 'costlens_cost_per=~"token|productive_token"'
_OTHERS = f'costlens_phase!~"{_PRODUCTIVE}"'
_EVERY_FIRST = 'costlens_rank="0"'
_COST = f"max by ({_CURRENCY}) ({select('costlens.run.cost', THE_RUN)})"
_AMOUNT = f"max by ({_CURRENCY}) ({select('costlens.budget.amount', THE_RUN)})"
_RATE = f"sum by ({_CURRENCY}) ({select('costlens.cost.rate', THE_RUN)})"


def _compare(per: str) -> str:
    """Return what a million units cost in each run of the chosen teams."""
    of_runs = select("costlens.run.unit.cost", f'costlens_cost_per="{per}"')
    each = newest(f"max by ({RUN}, {_CURRENCY}) ({of_runs})")
    return f"{MILLION} * ({of_team(each, over_range=True)})"


RUN_COST = Panel(
    "What has it cost so far?",
    "Money of the run over all its attempts and ranks, one number a currency. Empty where no price "
    "is known: unknown is not zero.",
    "none",
    (prom(_COST, "{{costlens_cost_currency}}"),),
    kind="number",
    width=4,
    height=4,
    decimals=2,
)
HOURLY = Panel(
    "What does an hour cost?",
    "The price of an hour of all ranks that report.",
    "none",
    (prom(_RATE, "{{costlens_cost_currency}}/h"),),
    kind="number",
    width=4,
    height=4,
    decimals=2,
)
UNIT_COSTS = Panel(
    "What does a unit of work cost?",
    "Money of the run so far per token, sample and step; productive ones alone, which is what they "
    "cost in the end; and per hour of a GPU, paid and in effect.",
    "none",
    (
        prom(
            f"max by (costlens_cost_per, {_CURRENCY}) "
            f"({select('costlens.run.unit.cost', THE_RUN)})",
            "per {{costlens_cost_per}} {{costlens_cost_currency}}",
        ),
    ),
    kind="bars",
    width=8,
)
TOKEN_PRICES = Panel(
    "What does a million tokens cost?",
    "Money of the run so far per million tokens without padding: of all that were processed, and "
    "of those in steps that survived.",
    "none",
    (
        prom(
            f"{MILLION} * max by (costlens_cost_per, {_CURRENCY}) "
            f"({select('costlens.run.unit.cost', THE_RUN, _PER_TOKEN)})",
            "{{costlens_cost_per}} {{costlens_cost_currency}}",
        ),
    ),
    kind="number",
    width=4,
    height=4,
    decimals=4,
)
GOODPUT = Panel(
    "How much of the paid time trained?",
    "Share of the run's paid time in steps that survived, over all attempts and ranks. What is "
    "missing to 1 was paid for something else.",
    "percentunit",
    (prom(f"max({select('costlens.run.goodput.ratio', THE_RUN)})", "goodput"),),
    least=0,
    most=1,
)
BUDGET = Panel(
    "How much of the budget is spent?",
    "Money of the run over its budget; above 1 it is exceeded.",
    "percentunit",
    (
        prom(
            f"max by ({_CURRENCY}) ({select('costlens.budget.spent.ratio', THE_RUN)})",
            "{{costlens_cost_currency}}",
        ),
    ),
    kind="number",
    width=4,
    height=4,
    decimals=0,
)
BUDGET_LEFT = Panel(
    "When is the budget gone?",
    "Time until the budget is spent at the present price of an hour. Red where an alert fires.",
    "s",
    (
        prom(
            f"{_PER_HOUR} * ({_AMOUNT} - {_COST}) / ({_RATE} > 0)",
            "left",
        ),
    ),
    kind="number",
    width=4,
    height=4,
    limit="budget_left_s",
    is_bad_below=True,
)
BURN = Panel(
    "Does the money last?",
    "What the run has cost over all attempts, and its budget. A jump to a steeper line is a change "
    "of price or of size.",
    "none",
    (
        prom(_COST, "cost {{costlens_cost_currency}}"),
        prom(_AMOUNT, "budget {{costlens_cost_currency}}"),
    ),
    least=0,
)
BURN_RATE = Panel(
    "How fast does the budget burn?",
    "Share of the whole budget that an hour costs at the present price. Above the line an alert "
    "fires: the budget lasts for less than a day.",
    "percentunit",
    (prom(f"{_RATE} / {_AMOUNT}", "{{costlens_cost_currency}} an hour"),),
    limit="budget_hour_ratio",
    decimals=1,
    least=0,
)
FORECAST = Panel(
    "What will it have cost in the end?",
    "Cost so far over the share of the planned steps that is done: the total if it goes on as it "
    "went, restarts included. Wild in the first minutes.",
    "none",
    (
        prom(
            f"{_COST} / on () group_left () (max({select('costlens.step.current', THE_RUN)}) / "
            f"max({select('costlens.step.planned', THE_RUN)}) > 0)",
            "{{costlens_cost_currency}}",
        ),
    ),
    kind="number",
    width=4,
    height=4,
    decimals=2,
)
COST_BY_PHASE = Panel(
    "What is an hour spent on?",
    "Money an hour by phase, of the chosen ranks. forward, backward, optimizer and compute train "
    "the model.",
    "none",
    (
        prom(
            f"{_PER_HOUR} * sum by (costlens_phase, {_CURRENCY}) "
            f"({rate('costlens.cost', THE_RANKS)}) > 0",
            "{{costlens_phase}} {{costlens_cost_currency}}/h",
        ),
    ),
    stack="normal",
    least=0,
)
SPENT_BY_PHASE = Panel(
    "What did this time range go to?",
    "Money by phase in the dashboard's time range, of the chosen ranks.",
    "none",
    (
        prom(
            f"sort_desc(sum by (costlens_phase, {_CURRENCY}) "
            f"({over_range('costlens.cost', THE_RANKS)}) > 0)",
            "{{costlens_phase}} {{costlens_cost_currency}}",
            is_instant=True,
        ),
    ),
    kind="bars",
    width=8,
    height=10,
    decimals=4,
)
WASTE = Panel(
    "How much money an hour trains nothing?",
    "Money an hour of phases that do not train, of the chosen ranks. Lost work comes on top: steps "
    "that had to be made again.",
    "none",
    (
        prom(
            f"{_PER_HOUR} * sum by ({_CURRENCY}) ({rate('costlens.cost', THE_RANKS, _OTHERS)})",
            "not training {{costlens_cost_currency}}/h",
        ),
        prom(_RATE, "all {{costlens_cost_currency}}/h"),
    ),
    least=0,
)
COST_PER_TOKEN = Panel(
    "Do tokens get dearer?",
    "Money per million tokens without padding, from what was spent and trained from point to "
    "point. A step upwards on one day is a regression: compare the code, the padding, the GPUs.",
    "none",
    (
        prom(
            f"{MILLION} * sum by ({_CURRENCY}) ({rate('costlens.cost', THE_RUN)}) / "
            f"on () group_left () (sum({rate('costlens.tokens', THE_RUN, _TOKENS)}) > 0)",
            "{{costlens_cost_currency}} per million tokens",
        ),
    ),
    least=0,
)
RUN_STEPS = Panel(
    "How many steps were lost?",
    "Optimizer steps of the run over all attempts: those that survived, and those that were made "
    "and had to be made again.",
    "none",
    (
        prom(
            f"max by (costlens_step_fate) ({select('costlens.run.steps', THE_RUN)})",
            "{{costlens_step_fate}}",
        ),
    ),
    stack="normal",
    decimals=0,
    least=0,
)
ENERGY_COST = Panel(
    "What does the energy cost?",
    "Money for the energy of the GPUs in the dashboard's time range, of the chosen ranks; in no "
    "other cost here. Only where a price of energy is set.",
    "none",
    (
        prom(
            f"sum by ({_CURRENCY}) ({over_range('costlens.energy.cost', THE_RANKS)})",
            "{{costlens_cost_currency}}",
            is_instant=True,
        ),
    ),
    kind="number",
    width=4,
    height=4,
    decimals=4,
)
PRICES = Panel(
    "Which prices are these?",
    "Price of an hour of each rank, with what it was launched as. Ranks that share a device share "
    "its price; a missing price has no line.",
    "none",
    (
        prom(
            f"max by ({RANK}, costlens_device, hw_name, costlens_capacity_type, cloud_provider, "
            f"cloud_region) ({select('costlens.run.info', THE_RANKS)})",
            is_instant=True,
        ),
        prom(
            f"max by ({RANK}, {_CURRENCY}) ({select('costlens.cost.rate', THE_RANKS)})",
            is_instant=True,
        ),
    ),
    kind="table",
    width=16,
    columns={
        RANK: Column("rank"),
        "costlens_device": Column("device"),
        "hw_name": Column("GPU"),
        "costlens_capacity_type": Column("capacity"),
        "cloud_provider": Column("provider"),
        "cloud_region": Column("region"),
        "Value #B": Column("price/h", decimals=4),
        _CURRENCY: Column("currency"),
    },
)
CURRENCIES = Panel(
    "In which currencies?",
    "Currencies that the run was paid in. More than one: nothing here adds them, and costs per "
    "unit are empty.",
    "none",
    (prom(f"count({_COST})", "currencies"),),
    kind="number",
    width=4,
    height=4,
    decimals=0,
)
COMPARED = Panel(
    "Which run makes tokens cheapest?",
    "Runs of this time range by model, experiment and its version (a commit, where that is set), "
    "with what a million tokens cost: of all, and of those in steps that survived.",
    "none",
    (
        prom(
            of_team(
                f"max by ({RUN}, costlens_run_name, costlens_model, costlens_experiment, "
                "costlens_experiment_version) "
                f"(last_over_time({select('costlens.run.info', _EVERY_FIRST)}[$__range]))",
                over_range=True,
            ),
            is_instant=True,
        ),
        prom(_compare("token"), is_instant=True),
        prom(_compare("productive_token"), is_instant=True),
        prom(
            of_team(
                newest(f"max by ({RUN}) ({select('costlens.run.goodput.ratio')})"), over_range=True
            ),
            is_instant=True,
        ),
    ),
    kind="table",
    width=24,
    columns={
        RUN: Column("run", link=SETTINGS.dashboards.run),
        "costlens_run_name": Column("name"),
        "costlens_model": Column("model"),
        "costlens_experiment": Column("experiment"),
        "costlens_experiment_version": Column("version"),
        "Value #B": Column("cost/M tokens", decimals=4),
        "Value #C": Column("cost/M productive tokens", decimals=4),
        _CURRENCY: Column("currency"),
        "Value #D": Column("goodput", "percentunit", 1),
    },
    sort="cost/M tokens",
)
