"""Single iterations, saves and minutes, from the traces in Tempo.

Every span carries the run, the attempt and the rank. TraceQL compares a rank as a number, which a
variable with several values is not: these panels show all ranks.
"""

from __future__ import annotations

from grafana.panel import Panel, spans

__all__ = [
    "BAD_SPANS",
    "BY_RANK",
    "CHECKPOINT_STALLS",
    "CHECKPOINT_TIMES",
    "MARKERS",
    "PERIODS",
    "PHASES_BY_TIME",
    "SLOWEST",
    "SLOWEST_BY_RANK",
]

_RUN = 'span.costlens.run.id = "$run"'
_WHO = "span.costlens.attempt, span.costlens.rank"

PERIODS = Panel(
    "What happened in each minute?",
    "One line a rank and period of 60 s: steps, waiting, cost. A click opens the trace that all "
    "ranks share, with the iterations that were kept.",
    "none",
    (
        spans(
            f'{{ name = "costlens.rank.period" && {_RUN} }} | select({_WHO}, span.costlens.steps, '
            "span.costlens.iteration.duration.median, span.costlens.iteration.duration.max, "
            "span.costlens.phase.time.data_wait, span.costlens.cost, "
            "span.costlens.gpu.utilization)"
        ),
    ),
    kind="spans",
    width=24,
    height=9,
)
MARKERS = Panel(
    "When did it start, and how did it end?",
    "A line for the start of each attempt, for its wait in the queue and for its end with outcome "
    "and totals; links in the trace lead to the attempt before.",
    "none",
    (
        spans(
            f'{{ name =~ "costlens.run|costlens.run.end|costlens.queue" && {_RUN} }} | '
            f"select({_WHO}, span.costlens.outcome, span.costlens.run.time, span.costlens.cost, "
            "span.error.type, span.costlens.error.location)"
        ),
    ),
    kind="spans",
    width=24,
    height=6,
)
SLOWEST = Panel(
    "Which iterations were slow, and why?",
    "Iterations that took much longer than usual, with the time of the phases that usually explain "
    "it. Sort by duration; a click opens the iteration with all its phases.",
    "none",
    (
        spans(
            f'{{ name = "costlens.iteration" && {_RUN} && span.costlens.reason = "slow" }} | '
            f"select({_WHO}, span.costlens.iteration, span.costlens.phase.time.data_wait, "
            "span.costlens.phase.time.transfer, span.costlens.phase.time.forward, "
            "span.costlens.phase.time.backward, span.costlens.phase.time.checkpoint)"
        ),
    ),
    kind="spans",
    width=24,
    height=9,
)
BAD_SPANS = Panel(
    "What went wrong?",
    "Spans with an error: values that were not finite with their iteration, saves that failed, "
    "attempts that failed with where the code stood.",
    "none",
    (
        spans(
            f"{{ {_RUN} && status = error }} | select({_WHO}, statusMessage, span.error.type, "
            "span.costlens.iteration, span.costlens.quality.name, span.costlens.error.location)"
        ),
    ),
    kind="spans",
    width=24,
    height=7,
)
BY_RANK = Panel(
    "How long are iterations on each rank?",
    "Median duration of the iterations that have traces, by rank. Good for ranking; the histogram "
    "measures.",
    "s",
    (
        spans(
            f'{{ name = "costlens.iteration" && {_RUN} }} | quantile_over_time(duration, 0.5) '
            "by (span.costlens.rank)"
        ),
    ),
    kind="span_graph",
    width=12,
)
SLOWEST_BY_RANK = Panel(
    "Which rank has the slowest iterations?",
    "Longest traced iteration, the five ranks with the longest ones.",
    "s",
    (
        spans(
            f'{{ name = "costlens.iteration" && {_RUN} }} | max_over_time(duration) '
            "by (span.costlens.rank) | topk(5)"
        ),
    ),
    kind="span_graph",
    width=12,
)
PHASES_BY_TIME = Panel(
    "Which phases fill the traced iterations?",
    "Time of the phases in the iterations that have traces, slow ones among them: compare with the "
    "phases of all iterations above.",
    "s",
    (spans(f'{{ name =~ "costlens.phase.*" && {_RUN} }} | sum_over_time(duration) by (name)'),),
    kind="span_graph",
    width=12,
)
CHECKPOINT_STALLS = Panel(
    "Which saves held the training up?",
    "Snapshots, each with the time that training stood still; the trace shows the write that went "
    "on beside it.",
    "none",
    (
        spans(
            f'{{ name = "costlens.checkpoint" && {_RUN} '
            "&& span.costlens.checkpoint.stall.time > 0 } "
            f"| select({_WHO}, span.costlens.step.current, span.costlens.checkpoint.kind, "
            "span.costlens.checkpoint.stall.time, span.costlens.checkpoint.write.time, "
            "span.costlens.checkpoint.size, span.error.type)"
        ),
    ),
    kind="spans",
    width=24,
    height=7,
)
CHECKPOINT_TIMES = Panel(
    "How long do snapshots hold it up, by rank?",
    "Longest snapshot of each rank: one rank with a slow disk makes all others wait.",
    "s",
    (
        spans(
            f'{{ name = "costlens.checkpoint.stall" && {_RUN} }} | max_over_time(duration) '
            "by (span.costlens.rank)"
        ),
    ),
    kind="span_graph",
    width=8,
)
