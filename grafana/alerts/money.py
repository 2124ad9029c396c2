"""Alerts on money: dearer tokens, and budgets, which count a run over all attempts and ranks."""

from __future__ import annotations

from grafana.alerts.model import RUN, Alert, Case, Query
from grafana.alerts.situations import gauge, rank, series

__all__ = ["ALERTS"]

_USD = {"costlens_run_id": "r", "costlens_cost_currency": "USD"}
_CURRENCY = "{{ $labels.costlens_cost_currency }}"
_TRAINS = "max by (costlens_run_id) (rank:costlens_training:ratio_rate5m)"
_PERIODS = (
    '{ span.costlens.run.id = "$run" && name = "costlens.rank.period" }'
    " | select(span.costlens.rank, span.costlens.cost)"
)
_BY_PHASE = Query(
    "Money an hour by phase",
    "promql",
    "sum by (costlens_phase, costlens_cost_currency) "
    '(rate(costlens_cost_total{costlens_run_id="$run"}[15m])) * 3600',
)
# A budget that lasts until the last step is no news, however fast it goes.
_LASTS = """unless on (costlens_run_id)
(run:costlens_time_left:seconds
  < on (costlens_run_id) min by (costlens_run_id) (run:costlens_budget_left:seconds))"""


def _burn(window: str) -> str:
    """Return the share of its budget that a run spends in an hour, over a window."""
    return f"""delta(run:costlens_run_cost:total[${window}])
/ on (costlens_run_id, costlens_cost_currency)
run:costlens_budget:amount * $hour_s / ${window}_s"""


def _budget(
    spent: str, amount: float = 1000, *, run_minutes: int = 60
) -> tuple[tuple[str, str], ...]:
    return (
        *rank(until=run_minutes),
        series("costlens_run_cost", spent, costlens_cost_currency="USD"),
        series("costlens_budget_amount", f"{amount:g}x{run_minutes}", costlens_cost_currency="USD"),
    )


_REGRESSION = Alert(
    name="CostlensCostPerTokenRegression",
    area="money",
    severity="warning",
    value="""run:costlens_cost_per_token:ratio_rate1h
/ on (costlens_run_id, costlens_cost_currency)
avg_over_time(run:costlens_cost_per_token:ratio_rate1h[$day] offset $hour)""",
    bound="> $cost_per_token_ratio",
    scope=f"and on (costlens_run_id) {_TRAINS}",
    hold="half_hour",
    summary=f"Tokens of run {RUN} have become dearer",
    description="A token costs {{ $value | humanize }} times what it cost over the last day, "
    f"in {_CURRENCY}.",
    dashboard="cost",
    traces=_PERIODS,
    meaning="The same money buys fewer tokens than it did. Start-up, restores and idle devices are "
    "left out, for they come with a restart; evaluation and saves are in it.",
    checks=(
        "Is it the speed? CostlensTaskSlow and CostlensDataBound say so.",
        "Is it the price (the second query), after a restart on other machines?",
        "Is it the tokens: more padding (slots against tokens, the third query), longer "
        "evaluations, more saves (the first query)?",
    ),
    queries=(
        _BY_PHASE,
        Query(
            "Money an hour by rank",
            "promql",
            'costlens_cost_rate_per_hour{costlens_run_id="$run"}',
        ),
        Query(
            "Tokens by kind",
            "promql",
            "sum by (costlens_token_kind) "
            '(rate(costlens_tokens_total{costlens_run_id="$run"}[15m]))',
        ),
    ),
    cases=(
        Case(
            "half the tokens for the same money since an hour",
            (
                *rank(cost_per_minute=1, until=360),
                series(
                    "costlens_tokens_total",
                    "0+6000x240 1440000+3000x119",
                    costlens_token_kind="tokens",
                ),
            ),
            at="345m",
            labels=_USD,
            description="A token costs 1.919 times what it cost over the last day, in USD.",
        ),
        Case("as dear as ever", rank(cost_per_minute=1, until=360), at="345m"),
        Case(
            "a restart pays an hour of start-up",
            (
                *rank(cost_per_minute=1, until=360),
                series(
                    "costlens_cost_total",
                    "0x240 0+2x119",
                    costlens_phase="startup",
                    costlens_cost_currency="USD",
                ),
            ),
            at="345m",
        ),
    ),
)

_BURN_FAST = Alert(
    name="CostlensBudgetBurnFast",
    area="money",
    severity="critical",
    value=_burn("hour"),
    bound="> $budget_hour_ratio",
    scope=f"""and on (costlens_run_id, costlens_cost_currency)
({_burn("rate")}) > $budget_hour_ratio
and on (costlens_run_id, costlens_cost_currency) run:costlens_budget_left:amount
{_LASTS}""",
    hold="soon",
    summary=f"Run {RUN} burns its budget",
    description="It spends {{ $value | humanizePercentage }} of its budget an hour, over the last "
    "hour and the last five minutes alike.",
    dashboard="cost",
    traces=_PERIODS,
    meaning="At this rate the budget is gone within a day, before the planned steps are done "
    "(where the loop knows them). The money is that of all attempts and ranks.",
    checks=(
        "Is it more machines or a higher price than meant (the first query)?",
        "Does it make steps for the money? If not, see CostlensRunStalled and CostlensRestartLoop.",
        "Stop it (SIGTERM saves first), or raise `COSTLENS_BUDGET` at the next start.",
    ),
    queries=(
        Query(
            "Money an hour by rank",
            "promql",
            'costlens_cost_rate_per_hour{costlens_run_id="$run"}',
        ),
        _BY_PHASE,
        Query("What is left", "promql", 'run:costlens_budget_left:amount{costlens_run_id="$run"}'),
    ),
    cases=(
        Case(
            "a tenth an hour",
            _budget("0+1.6666666666666667x180", run_minutes=180),
            at="150m",
            labels=_USD,
            description="It spends 10% of its budget an hour, over the last hour and the last five "
            "minutes alike.",
        ),
        Case(
            "it stopped five minutes ago",
            _budget("0+1.6666666666666667x140 233.3x40", run_minutes=180),
            at="150m",
        ),
        Case("a hundredth an hour", _budget("0+0.16x180", run_minutes=180), at="150m"),
        Case(
            "the last step comes before the end of the budget",
            (
                *_budget("0+1.6666666666666667x180", run_minutes=180),
                series("costlens_step_planned", "12000x180"),
                series("costlens_step_current", "0+60x180"),
            ),
            at="150m",
        ),
        Case("no budget", rank(cost_per_minute=100)),
    ),
)

_BURN_SLOW = Alert(
    name="CostlensBudgetBurnSlow",
    area="money",
    severity="warning",
    value=_burn("quarter_day"),
    bound="> $budget_slow_hour_ratio",
    scope=f"""and on (costlens_run_id, costlens_cost_currency)
({_burn("half_hour")}) > $budget_slow_hour_ratio
and on (costlens_run_id, costlens_cost_currency) run:costlens_budget_left:amount
{_LASTS}""",
    hold="half_hour",
    summary=f"The budget of run {RUN} will not last",
    description="It spends {{ $value | humanizePercentage }} of its budget an hour, over the last "
    "six hours and the last half hour alike.",
    dashboard="cost",
    traces=_PERIODS,
    meaning="At this rate the budget is gone in two days, before the planned steps are done (where "
    "the loop knows them).",
    checks=(
        "When is it gone (the first query), and when would the run be done (the second)?",
        "What buys no progress (the third query: data_wait, checkpoint, validation)?",
        "Decide now: fewer steps, more money, or fewer machines.",
    ),
    queries=(
        Query(
            "Time until the budget is gone",
            "promql",
            'run:costlens_budget_left:seconds{costlens_run_id="$run"}',
        ),
        Query(
            "Time until the last step",
            "promql",
            'run:costlens_time_left:seconds{costlens_run_id="$run"}',
        ),
        _BY_PHASE,
    ),
    cases=(
        Case(
            "three hundredths an hour",
            _budget("0+0.5x720", run_minutes=720),
            at="450m",
            labels=_USD,
            description="It spends 3% of its budget an hour, over the last six hours and the last "
            "half hour alike.",
        ),
        Case("a hundredth an hour", _budget("0+0.16x720", run_minutes=720), at="450m"),
    ),
)

_EXHAUSTION = Alert(
    name="CostlensBudgetExhaustion",
    area="money",
    severity="warning",
    value="run:costlens_budget_left:seconds",
    bound="< $budget_left_s",
    scope=f"""and on (costlens_run_id) {_TRAINS}
{_LASTS}""",
    hold="steady",
    summary=f"The budget of run {RUN} is nearly gone",
    description="At the rate of the last hour its budget is gone in "
    "{{ $value | humanizeDuration }}.",
    dashboard="cost",
    traces=_PERIODS,
    meaning="The run will be over its budget soon, before its planned steps are done (where the "
    "loop knows them). With `COSTLENS_BUDGET_ACTION=stop` it will save and end there.",
    checks=(
        "Is what it has reached enough? The loss on the run's dashboard.",
        "What happens at the end: does it warn or stop (`costlens config`)?",
        "Is the newest checkpoint near (the second query)? Ask for one if not.",
    ),
    queries=(
        Query("What is left", "promql", 'run:costlens_budget_left:amount{costlens_run_id="$run"}'),
        Query(
            "Work that is not saved",
            "promql",
            'costlens_unsaved_time_seconds{costlens_run_id="$run"}',
        ),
    ),
    cases=(
        Case(
            "five hours left",
            _budget("0+1x180", amount=450, run_minutes=180),
            at="150m",
            labels=_USD,
            description="At the rate of the last hour its budget is gone in 5h 2m 0s.",
        ),
        Case("a day left", _budget("0+1x180", amount=1600, run_minutes=180), at="150m"),
        Case(
            "the run is over",
            (
                *rank(until=100, then="completed"),
                series("costlens_run_cost", "0+1x100", costlens_cost_currency="USD"),
                series("costlens_budget_amount", "150x100", costlens_cost_currency="USD"),
            ),
            at="103m",
        ),
    ),
)

_EXCEEDED = Alert(
    name="CostlensBudgetExceeded",
    area="money",
    severity="critical",
    value="max by (costlens_run_id, costlens_cost_currency) (costlens_budget_spent_ratio)",
    bound=">= 1",
    scope="and on (costlens_run_id) max by (costlens_run_id) (rank:costlens_live:last_time)",
    summary=f"Run {RUN} is over its budget",
    description="It has spent {{ $value | humanizePercentage }} of its budget "
    f"({_CURRENCY}) and goes on.",
    dashboard="cost",
    traces=_PERIODS,
    meaning="All attempts and ranks together have cost more than `COSTLENS_BUDGET`, and the run "
    "still lives: its action is to warn, or it has not come to its next step since.",
    checks=(
        "Is it meant to go on? Then raise `COSTLENS_BUDGET` at the next start.",
        "If not: SIGTERM to the job saves and ends it; `COSTLENS_BUDGET_ACTION=stop` does so by "
        "itself the next time.",
        "What was it spent on? `costlens report RUN`, or the query.",
    ),
    queries=(_BY_PHASE,),
    cases=(
        Case(
            "a fifth over",
            (
                *rank(),
                gauge("costlens_budget_spent_ratio", 1.2, costlens_cost_currency="USD"),
            ),
            labels=_USD,
            description="It has spent 120% of its budget (USD) and goes on.",
        ),
        Case(
            "nearly all",
            (
                *rank(),
                gauge("costlens_budget_spent_ratio", 0.99, costlens_cost_currency="USD"),
            ),
        ),
        Case(
            "it was stopped there",
            (
                *rank(until=48, then="completed"),
                gauge("costlens_budget_spent_ratio", 1.01, costlens_cost_currency="USD"),
            ),
        ),
    ),
)

ALERTS = (_REGRESSION, _BURN_FAST, _BURN_SLOW, _EXHAUSTION, _EXCEEDED)
