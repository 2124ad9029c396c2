"""Alerts on how long things take and how often they fail: queues, tasks, runs of a whole fleet."""

from __future__ import annotations

from grafana.alerts.model import RUN, Alert, Case, Query
from grafana.alerts.situations import gauge, rank, series

__all__ = ["ALERTS"]

_QUEUE = Alert(
    name="CostlensQueueWaitLong",
    area="run",
    severity="info",
    value="max by (costlens_run_id) (costlens_queue_wait_seconds)",
    bound="> $queue_wait_s",
    scope="""and on (costlens_run_id)
max by (costlens_run_id) (
  sum by (costlens_run_id, costlens_rank) (costlens_phase_time_seconds_total)
) < $hour_s""",
    summary=f"Run {RUN} waited long in its queue",
    description="The job waited {{ $value | humanizeDuration }} for resources and priority before "
    "this attempt began.",
    dashboard="runs",
    traces='{ span.costlens.run.id = "$run" && name = "costlens.queue" }',
    meaning="Nothing is wrong with the run; results come later, and a restart will wait again. It "
    "is told in the first hour of an attempt. Holds, dependencies and begin times do not count.",
    checks=(
        "Does it ask for more than it needs: nodes, hours, a special kind of GPU?",
        "Is it the queue's: do other runs in it wait as long (the query)?",
        "A long wait makes a restart dear: keep the allocation over restarts where that is "
        "possible, and save before the time limit (`COSTLENS_SLURM_REQUEUE`).",
    ),
    queries=(
        Query(
            "Waits by queue",
            "promql",
            "max by (costlens_job_queue) (costlens_queue_wait_seconds"
            " * on (costlens_run_id, costlens_rank) group_left (costlens_job_queue)"
            " costlens_run_info)",
        ),
    ),
    cases=(
        Case(
            "five hours",
            (*rank(), gauge("costlens_queue_wait_seconds", 18000)),
            at="20m",
            labels={"costlens_run_id": "r"},
            description="The job waited 5h 0m 0s for resources and priority before this attempt "
            "began.",
        ),
        Case("an hour", (*rank(), gauge("costlens_queue_wait_seconds", 3600)), at="20m"),
        Case(
            "told long enough",
            (
                gauge("costlens_queue_wait_seconds", 18000),
                gauge("costlens_phase_time_seconds_total", 4000, costlens_phase="forward"),
            ),
        ),
    ),
)

_SLOW = Alert(
    name="CostlensTaskSlow",
    area="run",
    severity="warning",
    value="""avg_over_time(run:costlens_iteration_time:mean_rate5m[$half_hour])
/ on (costlens_run_id)
avg_over_time(run:costlens_iteration_time:mean_rate5m[$day] offset $hour)""",
    bound="> $task_slowdown_ratio",
    scope="and on (costlens_run_id) run:costlens_iteration_time:mean_rate5m",
    hold="steady",
    summary=f"Run {RUN} will take longer than expected",
    description="Iterations take {{ $value | humanize }} times as long as they did over the last "
    "day: the run ends as much later, and costs as much more.",
    dashboard="bottleneck",
    traces='{ span.costlens.run.id = "$run" && name = "costlens.iteration"'
    ' && span.costlens.reason = "slow" } | select(span.costlens.rank)',
    meaning="What an iteration takes is compared with the run's own day before. Saves, evaluation "
    "and start-up are in neither. A change of batch or sequence length on purpose looks the same.",
    checks=(
        "Which phase grew? The first query; then the alert for that phase has its own section.",
        "On all ranks or on one? The second query. One: see CostlensStragglerRank.",
        "On all: did something else move onto the nodes, the store or the network at that time?",
    ),
    queries=(
        Query(
            "Seconds of an iteration by phase",
            "promql",
            "avg by (costlens_phase) "
            '(rank:costlens_phase_iteration_time:mean_rate5m{costlens_run_id="$run"})',
        ),
        Query(
            "Seconds of an iteration by rank",
            "promql",
            'rank:costlens_iteration_time:mean_rate5m{costlens_run_id="$run"}',
        ),
    ),
    cases=(
        Case(
            "a quarter as fast since an hour",
            (
                *rank(until=240),
                series("costlens_iterations_total", "0+60x170 10215+15x69"),
            ),
            at="230m",
            labels={"costlens_run_id": "r"},
            description="Iterations take 4 times as long as they did over the last day: the run "
            "ends as much later, and costs as much more.",
        ),
        Case("as fast as ever", rank(until=240), at="230m"),
        Case("too young to have a day before", rank(iterations_per_minute=1), at="50m"),
    ),
)

_FAILING = Alert(
    name="CostlensRunsFailing",
    area="run",
    severity="warning",
    value="""sum(max by (costlens_run_id) (
  last_over_time(costlens_run_state{costlens_rank="0",costlens_state="failed"}[$quarter_day])
))
/
sum(max by (costlens_run_id) (
  last_over_time(costlens_run_state{costlens_rank="0",costlens_state=~"$ended"}[$quarter_day])
))""",
    bound="> $failed_runs_ratio",
    scope="""and
sum(max by (costlens_run_id) (
  last_over_time(costlens_run_state{costlens_rank="0",costlens_state="failed"}[$quarter_day])
)) >= $failed_runs""",
    summary="Many runs fail",
    description="{{ $value | humanizePercentage }} of the runs that ended in the last six hours "
    "failed.",
    dashboard="runs",
    traces='{ name = "costlens.run.end" && status = error }'
    " | select(span.costlens.run.id, span.error.type)",
    meaning="Runs end with an exception more often than usual, at least three of them: something "
    "they share is broken. Runs that were stopped, preempted or killed do not count as failed.",
    checks=(
        "Do they fail with the same error? The search lists it with each run.",
        "Do they share a node, an image, a store, a commit? The first query shows host and team.",
        "Do they fail in start-up? Then nothing was lost but the start; else see what each lost in "
        "`costlens report RUN`.",
    ),
    queries=(
        Query(
            "The runs that failed",
            "promql",
            "max by (costlens_run_id) (last_over_time("
            'costlens_run_state{costlens_rank="0",costlens_state="failed"}[6h])) == 1',
        ),
    ),
    cases=(
        Case(
            "three of four",
            tuple(
                one
                for run, end in zip(
                    "abcd", ("failed", "failed", "failed", "completed"), strict=True
                )
                for one in rank(run=run, until=20, then=end)
            ),
            at="60m",
            labels={},
            description="75% of the runs that ended in the last six hours failed.",
        ),
        Case("one of one, which says little", rank(run="a", until=20, then="failed"), at="60m"),
    ),
)

ALERTS = (_QUEUE, _SLOW, _FAILING)
