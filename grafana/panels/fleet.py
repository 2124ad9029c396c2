"""Which runs need attention, and where does the money go: over all runs at once."""

from __future__ import annotations

from costlens.core.records import Outcome
from grafana.names import select
from grafana.panel import Column, Panel, prom
from grafana.panels.states import STATE_TEXTS, state_number
from grafana.queries import MILLION, RUN, RUNS, newest, of_team, rate
from grafana.settings import SETTINGS

__all__ = [
    "ALERTS",
    "COST_RATE",
    "ENDINGS",
    "GOODPUT",
    "HOURLY",
    "NUM_RANKS",
    "NUM_RUNNING",
    "QUEUES",
    "RESTART_LOOPS",
    "RUNS_TABLE",
    "TEAMS",
]

_MONEY = f"{RUN}, costlens_cost_currency"
_FIRST = f'{RUNS},costlens_rank="0"'
_TOKENS = 'costlens_token_kind="tokens"'
_ENDED = "|".join(o.value for o in Outcome if o not in {Outcome.RUNNING, Outcome.LOST})
_IS_OVER = f'costlens_state=~"{_ENDED}"'
_RUNNING = 'costlens_state="running"'
_PER_TOKEN = 'costlens_cost_per="token"'


def _of_run(metric: str, *matchers: str, by: str = RUN) -> str:
    """Return the newest value of what rank 0 tells of its run, of the chosen runs and teams."""
    return of_team(newest(f"max by ({by}) ({select(metric, _FIRST, *matchers)})"), over_range=True)


NUM_RUNNING = Panel(
    "How many runs train now?",
    "Runs with a rank whose state is running; none where nothing trains.",
    "none",
    (
        prom(
            "count("
            + of_team(f"max by ({RUN}) ({select('costlens.run.state', RUNS, _RUNNING)}) == 1")
            + ")",
            "runs",
        ),
    ),
    kind="number",
    width=4,
    height=4,
    without="none",
    decimals=0,
)
NUM_RANKS = Panel(
    "How many ranks report now?",
    "Ranks that sent values in the last minutes; each drives a device of its own.",
    "none",
    (
        prom(
            "count("
            + of_team(f"max by ({RUN}, costlens_rank) ({select('costlens.heartbeat.time', RUNS)})")
            + ")",
            "ranks",
        ),
    ),
    kind="number",
    width=4,
    height=4,
    without="none",
    decimals=0,
)
HOURLY = Panel(
    "What does all of it cost an hour?",
    "The price of an hour of all ranks that report, one number a currency. Runs without a price "
    "are in none of them.",
    "none",
    (
        prom(
            "sum by (costlens_cost_currency) ("
            + of_team(f"sum by ({_MONEY}) ({select('costlens.cost.rate', RUNS)})")
            + ")",
            "{{costlens_cost_currency}}/h",
        ),
    ),
    kind="number",
    width=5,
    height=4,
    decimals=2,
)
GOODPUT = Panel(
    "How much of the paid time trains?",
    "Goodput of each run: the share of its paid time in steps that survived, over all attempts and "
    "ranks. The rest is start-up, waiting, saving, and steps that were lost.",
    "percentunit",
    (
        prom(
            of_team(f"max by ({RUN}) ({select('costlens.run.goodput.ratio', RUNS)})"),
            "{{costlens_run_id}}",
        ),
    ),
    width=8,
    least=0,
    most=1,
)
ALERTS = Panel(
    "Which alerts fire?",
    "Alerts of costlens that fire or are about to; each links to its section of the runbook.",
    "none",
    (),
    kind="alerts",
    width=11,
    height=4,
)
RUNS_TABLE = Panel(
    "Which runs need attention?",
    "One line a run of this time range, the dearest first. A red cell is where an alert fires; a "
    "click on a run opens it. Totals are over all attempts and ranks; what nobody knows is empty.",
    "none",
    (
        prom(
            of_team(
                f"max by ({RUN}, costlens_run_name, costlens_team, costlens_model) "
                f"(last_over_time({select('costlens.run.info', _FIRST)}[$__range]))",
                over_range=True,
            ),
            is_instant=True,
        ),
        prom(
            of_team(newest(f"max by ({RUN}) ({state_number(_FIRST)})"), over_range=True),
            is_instant=True,
        ),
        prom(_of_run("costlens.run.ranks"), is_instant=True),
        prom(
            f"{_of_run('costlens.step.current')} / on ({RUN}) ({_of_run('costlens.step.planned')})",
            is_instant=True,
        ),
        prom(
            of_team(f"sum by ({RUN}) ({rate('costlens.tokens', RUNS, _TOKENS)})"), is_instant=True
        ),
        prom(of_team(f"avg by ({RUN}) ({select('costlens.mfu.ratio', RUNS)})"), is_instant=True),
        prom(_of_run("costlens.run.goodput.ratio"), is_instant=True),
        prom(_of_run("costlens.run.cost", by=_MONEY), is_instant=True),
        prom(of_team(f"sum by ({RUN}) ({select('costlens.cost.rate', RUNS)})"), is_instant=True),
        prom(
            f"{MILLION} * ({_of_run('costlens.run.unit.cost', _PER_TOKEN)})",
            is_instant=True,
        ),
        prom(of_team(f"max by ({RUN}) ({select('costlens.unsaved.time', RUNS)})"), is_instant=True),
        prom(_of_run("costlens.budget.spent.ratio"), is_instant=True),
    ),
    kind="table",
    width=24,
    height=11,
    columns={
        RUN: Column("run", link=SETTINGS.dashboards.run),
        "costlens_run_name": Column("name"),
        "costlens_team": Column("team"),
        "costlens_model": Column("model"),
        "Value #B": Column("state", texts=STATE_TEXTS),
        "Value #C": Column("ranks", decimals=0),
        "Value #D": Column("done", "percentunit", 0),
        "Value #E": Column("tokens/s", "short", 1),
        "Value #F": Column("MFU", "percentunit", 1),
        "Value #G": Column("goodput", "percentunit", 1),
        "Value #H": Column("cost so far", decimals=2),
        "costlens_cost_currency": Column("currency"),
        "Value #I": Column("cost/h", decimals=2),
        "Value #J": Column("cost/M tokens", decimals=4),
        "Value #K": Column("unsaved", "s", 0),
        "Value #L": Column("budget spent", "percentunit", 0),
    },
    sort="cost so far",
)
TEAMS = Panel(
    "Who spends the money?",
    "What the runs of each team have cost so far, over all their attempts; one bar a currency.",
    "none",
    (
        prom(
            "sum by (costlens_team, costlens_cost_currency) ("
            f"({_of_run('costlens.run.cost', by=_MONEY)})"
            f" * on ({RUN}) group_left (costlens_team) max by ({RUN}, costlens_team) "
            f"(last_over_time({select('costlens.run.info', _FIRST)}[$__range])))",
            "{{costlens_team}} {{costlens_cost_currency}}",
            is_instant=True,
        ),
    ),
    kind="bars",
    width=8,
    decimals=2,
)
COST_RATE = Panel(
    "Which runs does the money go to?",
    "What an hour of each run costs, stacked; a gap is time in which nothing was paid.",
    "none",
    (
        prom(
            of_team(f"sum by ({_MONEY}) ({select('costlens.cost.rate', RUNS)})"),
            "{{costlens_run_id}} {{costlens_cost_currency}}/h",
        ),
    ),
    width=8,
    stack="normal",
    least=0,
)
ENDINGS = Panel(
    "How did the runs of this time end?",
    "Attempts by outcome, as their own rank 0 told it. A process that was killed tells nothing: "
    "`costlens runs` finds it as lost.",
    "none",
    (
        prom(
            "count by (costlens_state) ("
            + of_team(
                f"max by ({RUN}, costlens_state) (last_over_time("
                f"{select('costlens.run.state', _FIRST, _IS_OVER)}"
                "[$__range])) == 1",
                over_range=True,
            )
            + ")",
            "{{costlens_state}}",
            is_instant=True,
        ),
    ),
    kind="bars",
    width=8,
    decimals=0,
)
QUEUES = Panel(
    "How long did jobs wait in their queue?",
    "Time from when a job could run until it did, by run and queue, as the scheduler told it.",
    "s",
    (
        prom(
            f"max by ({RUN}, costlens_job_queue) (({_of_run('costlens.queue.wait')}) * on ({RUN}) "
            f"group_left (costlens_job_queue) max by ({RUN}, costlens_job_queue) "
            f"(last_over_time({select('costlens.run.info', _FIRST)}[$__range])))",
            "{{costlens_job_queue}} {{costlens_run_id}}",
            is_instant=True,
        ),
    ),
    kind="bars",
    width=8,
    limit="queue_wait_s",
)
RESTART_LOOPS = Panel(
    "Which runs start again and again?",
    "Attempts in a row that ended badly without getting further; 0 is well. A run that goes round "
    "in circles pays for every round.",
    "none",
    (
        prom(
            of_team(f"max by ({RUN}) ({select('costlens.restart_loop', RUNS)})"),
            "{{costlens_run_id}}",
        ),
    ),
    width=8,
    decimals=0,
    least=0,
    limit="restart_loop",
)
