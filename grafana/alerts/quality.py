"""Alerts on the numbers of the training itself: a loss that is none, steps that were skipped."""

from __future__ import annotations

from grafana.alerts.model import RUN, Alert, Case, Query
from grafana.alerts.situations import counter, gauge, rank, series

__all__ = ["ALERTS"]

_NONFINITE = Alert(
    name="CostlensNonFiniteLoss",
    area="model",
    severity="critical",
    value="""sum by (costlens_run_id) (
  increase(costlens_nonfinite_events_total{costlens_nonfinite_source="loss"}[$rare])
)""",
    bound="> 0",
    scope="and on (costlens_run_id) max by (costlens_run_id) (rank:costlens_live:last_time)",
    summary=f"The loss of run {RUN} is not finite",
    description="{{ $value | humanize }} losses in fifteen minutes were NaN or infinite. What is "
    "trained from here on is mostly worthless, and paid for.",
    dashboard="run",
    traces='{ span.costlens.run.id = "$run" && span.error.type = "nonfinite" }'
    " | select(span.costlens.rank, span.costlens.iteration, span.costlens.quality.name)",
    meaning="A loss that was logged was NaN or infinite. Steps that a gradient scaler skips are "
    "another alert, for they do no harm.",
    checks=(
        "Which was the first? The search shows iteration and rank of the first bad value.",
        "One rank only: its batch is the suspect. All at once: look at the gradient norm and the "
        "learning rate just before (the queries).",
        "Stop the run, and go back to a checkpoint from before that step (`costlens checkpoints ls "
        "URL`): those taken since hold the bad weights.",
    ),
    queries=(
        Query(
            "Norm of the gradients before",
            "promql",
            'costlens_grad_norm{costlens_run_id="$run"}',
        ),
        Query("Learning rate", "promql", 'costlens_learning_rate{costlens_run_id="$run"}'),
        Query("The last finite loss", "promql", 'costlens_loss{costlens_run_id="$run"}'),
    ),
    cases=(
        Case(
            "a loss turns NaN",
            (
                *rank(),
                series(
                    "costlens_nonfinite_events_total",
                    "0x45 15x14",
                    costlens_nonfinite_source="loss",
                ),
            ),
            labels={"costlens_run_id": "r"},
            description="15 losses in fifteen minutes were NaN or infinite. What is trained "
            "from here on is mostly worthless, and paid for.",
        ),
        Case(
            "a metric that is NaN, as an empty class's is",
            (
                *rank(),
                counter("costlens_nonfinite_events_total", 1, costlens_nonfinite_source="metric"),
                gauge("costlens_nonfinite_events_total", 0, costlens_nonfinite_source="loss"),
            ),
        ),
        Case(
            "the run has ended because of it",
            (
                *rank(until=45, then="failed"),
                series(
                    "costlens_nonfinite_events_total",
                    "0x44 1x14",
                    costlens_nonfinite_source="loss",
                ),
            ),
        ),
    ),
)

_SKIPS = Alert(
    name="CostlensOverflowSkips",
    area="model",
    severity="warning",
    value="""sum by (costlens_run_id) (
  rate(costlens_steps_total{costlens_step_outcome="skipped"}[$rare])
)
/ on (costlens_run_id)
(sum by (costlens_run_id) (rate(costlens_steps_total[$rare])) > 0)""",
    bound="> $skipped_steps_ratio",
    scope="and on (costlens_run_id) run:costlens_phase_time:ratio_rate5m",
    hold="soon",
    summary=f"The gradient scaler of run {RUN} skips many steps",
    description="{{ $value | humanizePercentage }} of its optimizer steps were skipped because "
    "gradients overflowed: their time was spent for nothing.",
    dashboard="run",
    traces='{ span.costlens.run.id = "$run" && name = "costlens.rank.period" }'
    " | select(span.costlens.rank, span.costlens.steps.skipped)",
    meaning="With fp16 a scaler multiplies the loss and skips a step whose gradients overflow. "
    "Some skips at the start are usual while it finds its scale; many later on are not.",
    checks=(
        "Does the scale fall and fall (the first query)? Then gradients really explode: learning "
        "rate, clipping, bad samples.",
        "Does it hover? Then fp16 is too narrow: bf16 needs no scaler (`COSTLENS_PRECISION=auto`).",
        "What did it cost? The second query has the time.",
    ),
    queries=(
        Query(
            "The scale of the loss",
            "promql",
            'costlens_precision_loss_scale{costlens_run_id="$run"}',
        ),
        Query(
            "Time of skipped steps",
            "promql",
            'increase(costlens_precision_skipped_time_seconds_total{costlens_run_id="$run"}[1h])',
        ),
    ),
    cases=(
        Case(
            "one in five",
            (
                *rank(),
                counter("costlens_steps_total", 15, costlens_step_outcome="skipped"),
            ),
            labels={"costlens_run_id": "r"},
            description="20% of its optimizer steps were skipped because gradients overflowed: "
            "their time was spent for nothing.",
        ),
        Case(
            "the scaler finds its scale in the first minute",
            (
                *rank(),
                series("costlens_steps_total", "0 5x59", costlens_step_outcome="skipped"),
            ),
            at="10m",
        ),
    ),
)

ALERTS = (_NONFINITE, _SKIPS)
