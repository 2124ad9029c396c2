"""Alerts on checkpoints: what a crash would cost, and whether saves work."""

from __future__ import annotations

from grafana.alerts.model import RUN, Alert, Case, Query
from grafana.alerts.situations import counter, gauge, rank, series

__all__ = ["ALERTS"]

_AGE = "{{ $value | humanizeDuration }}"
_TRAINS = "max by (costlens_run_id) (rank:costlens_training:ratio_rate5m)"
_SAVES = Query(
    "Saves of the last hour by how they ended",
    "promql",
    "sum by (costlens_checkpoint_outcome) "
    '(increase(costlens_checkpoint_saves_total{costlens_run_id="$run"}[1h]))',
)
_SPANS = (
    '{ span.costlens.run.id = "$run" && name = "costlens.checkpoint" }'
    " | select(span.costlens.rank, span.error.type)"
)

_STALE = Alert(
    name="CostlensCheckpointStale",
    area="checkpoint",
    severity="warning",
    value="max by (costlens_run_id) (costlens_unsaved_time_seconds)",
    bound="> 0",
    scope=f"""and on (costlens_run_id) (
  max by (costlens_run_id) (costlens_unsaved_time_seconds)
  > on (costlens_run_id)
  $stale_intervals * max by (costlens_run_id) (costlens_checkpoint_interval_seconds)
  or on (costlens_run_id)
  (
    max by (costlens_run_id) (costlens_unsaved_time_seconds)
    unless on (costlens_run_id)
    max by (costlens_run_id) (costlens_checkpoint_interval_seconds)
  ) > $no_checkpoint_s
)
and on (costlens_run_id) {_TRAINS}""",
    hold="soon",
    summary=f"The newest checkpoint of run {RUN} is old",
    description=f"A crash now would lose {_AGE} of work, though the run trains and should have "
    "saved.",
    dashboard="reliability",
    traces=_SPANS,
    meaning="Saves are due and do not happen: none for twice the interval that was decided on, or "
    "none at all since the attempt began. It counts from the start of the attempt, for an older "
    "checkpoint saves nothing that this one did.",
    checks=(
        "Do saves fail (the first query)? Then CostlensCheckpointFailing has the causes.",
        "Is one under way? The second query: writes that take longer than the interval let the "
        "next ones be skipped.",
        "Does the loop call `checkpoints.step()`, and does every rank reach it?",
    ),
    queries=(
        _SAVES,
        Query(
            "Share of the time in which a write is under way",
            "promql",
            'rate(costlens_checkpoint_write_time_seconds_total{costlens_run_id="$run"}[15m])',
        ),
        Query(
            "The interval that was decided on",
            "promql",
            'costlens_checkpoint_interval_seconds{costlens_run_id="$run"}',
        ),
    ),
    cases=(
        Case(
            "no save for three intervals",
            (
                *rank(),
                series("costlens_unsaved_time_seconds", "0+60x60"),
                gauge("costlens_checkpoint_interval_seconds", 1000),
            ),
            labels={"costlens_run_id": "r"},
            description="A crash now would lose 50m 0s of work, though the run trains and should "
            "have saved.",
        ),
        Case(
            "none since the start of the run",
            (*rank(), series("costlens_unsaved_time_seconds", "0+60x60")),
            labels={"costlens_run_id": "r"},
            description="A crash now would lose 50m 0s of work, though the run trains and should "
            "have saved.",
        ),
        Case(
            "none yet, in the first half hour",
            (*rank(), series("costlens_unsaved_time_seconds", "0+60x60")),
            at="30m",
        ),
        Case(
            "saves come as they should",
            (
                *rank(),
                series("costlens_unsaved_time_seconds", "0+60x10 0+60x10 0+60x10 0+60x10 0+60x10"),
                gauge("costlens_checkpoint_interval_seconds", 600),
            ),
        ),
        Case("a run without checkpoints", rank()),
    ),
)

_FAILING = Alert(
    name="CostlensCheckpointFailing",
    area="checkpoint",
    severity="critical",
    value="""sum by (costlens_run_id) (
  increase(costlens_checkpoint_saves_total{costlens_checkpoint_outcome="failed"}[$half_hour])
)""",
    bound="> 0",
    scope="and on (costlens_run_id) max by (costlens_run_id) (rank:costlens_live:last_time)",
    summary=f"Saves of run {RUN} fail",
    description="{{ $value | humanize }} saves failed in the last half hour. Until one succeeds, a "
    "crash loses everything since the newest checkpoint.",
    dashboard="reliability",
    traces='{ span.costlens.run.id = "$run" && name = "costlens.checkpoint"'
    " && status = error } | select(span.costlens.rank, span.error.type)",
    meaning="The store refused or lost what was written. The training goes on and tries again at "
    "the next interval.",
    checks=(
        "What failed? `error.type` of the span or of the event `costlens.checkpoint.failed`: no "
        "space, permission, an endpoint that does not answer.",
        "Try the place yourself from the rank's host: `costlens checkpoints ls URL`, then a write.",
        "Mend the store while the run goes on; the next save proves it (the query).",
    ),
    queries=(
        _SAVES,
        Query(
            "What failed",
            "logql",
            '{service_name=~".+"} | costlens_run_id="$run"'
            ' | event_name="costlens.checkpoint.failed"',
        ),
    ),
    cases=(
        Case(
            "one failed",
            (
                *rank(),
                series(
                    "costlens_checkpoint_saves_total",
                    "0x40 1x19",
                    costlens_checkpoint_outcome="failed",
                ),
            ),
            labels={"costlens_run_id": "r"},
            description="1 saves failed in the last half hour. Until one succeeds, a crash "
            "loses everything since the newest checkpoint.",
        ),
        Case(
            "saves that succeed, and are skipped",
            (
                *rank(),
                counter("costlens_checkpoint_saves_total", 1, costlens_checkpoint_outcome="saved"),
                counter(
                    "costlens_checkpoint_saves_total", 1, costlens_checkpoint_outcome="skipped"
                ),
                gauge("costlens_checkpoint_saves_total", 0, costlens_checkpoint_outcome="failed"),
            ),
        ),
    ),
)

_SLOW = Alert(
    name="CostlensCheckpointSlow",
    area="checkpoint",
    severity="warning",
    value="""max by (costlens_run_id) (
  sum by (costlens_run_id, costlens_rank) (
    rate(costlens_phase_time_seconds_total{costlens_phase="checkpoint"}[$hour])
  )
  / on (costlens_run_id, costlens_rank)
  (sum by (costlens_run_id, costlens_rank) (
    rate(costlens_phase_time_seconds_total{costlens_phase!="startup"}[$hour])
  ) > 0)
)""",
    bound="> $stall_ratio",
    scope=f"and on (costlens_run_id) {_TRAINS}",
    hold="steady",
    summary=f"Saves of run {RUN} take much of its time",
    description="The training stands still for saves for {{ $value | humanizePercentage }} of its "
    "time.",
    dashboard="reliability",
    traces=_SPANS,
    meaning="That share of the money goes into saving. It counts every save that stops the "
    "training, the framework's own as well.",
    checks=(
        "Whose saves? `costlens_checkpoint_saves_total` counts those of costlens; if they are few, "
        "the framework's own callback saves: give it a larger interval.",
        "How long is a stall (the first query)? Many seconds for a small state is a slow copy or a "
        "synchronous write: let costlens save, which writes beside the training.",
        "Too often: unset `COSTLENS_MAX_LOSS` or make it larger, and the interval is what costs "
        "the least.",
    ),
    queries=(
        Query(
            "Seconds that training stands still for one save of costlens",
            "promql",
            'rate(costlens_checkpoint_stall_time_seconds_total{costlens_run_id="$run"}[1h]) / '
            'on (costlens_rank) rate(costlens_checkpoint_saves_total{costlens_run_id="$run",'
            'costlens_checkpoint_outcome="saved"}[1h])',
        ),
        _SAVES,
    ),
    cases=(
        Case(
            "a quarter of the time",
            rank(phases={"forward": 0.75, "checkpoint": 0.25}),
            labels={"costlens_run_id": "r"},
            description="The training stands still for saves for 25% of its time.",
        ),
        Case("a twentieth", rank(phases={"forward": 0.95, "checkpoint": 0.05})),
    ),
)

_UNSAVED = Alert(
    name="CostlensUnsavedProgressExpensive",
    area="checkpoint",
    severity="warning",
    value="""sum by (costlens_run_id, costlens_cost_currency) (
  max by (costlens_run_id, costlens_rank, costlens_cost_currency) (costlens_unsaved_cost)
  and on (costlens_run_id, costlens_rank) rank:costlens_live:last_time
)""",
    bound="> $unsaved_cost",
    hold="brief",
    summary=f"A crash of run {RUN} would be dear",
    description="A crash now would lose work that cost {{ $value | humanize }} "
    "{{ $labels.costlens_cost_currency }}, over all ranks.",
    dashboard="cost",
    traces=_SPANS,
    meaning="The work since the newest checkpoint is worth more than the limit, whatever its age.",
    checks=(
        "Do saves happen and succeed (the query)? If they fail, see CostlensCheckpointFailing.",
        "They succeed: is the interval meant to be so long? `COSTLENS_MAX_LOSS` bounds it.",
        "Is a node about to go (maintenance, spot capacity)? Ask for a save: SIGTERM to the job "
        "saves and ends it, and it resumes there.",
    ),
    queries=(
        _SAVES,
        Query(
            "Money at stake by rank",
            "promql",
            'costlens_unsaved_cost{costlens_run_id="$run"}',
        ),
    ),
    cases=(
        Case(
            "two ranks with 300 each",
            (
                *rank(0),
                *rank(1),
                gauge("costlens_unsaved_cost", 300, costlens_cost_currency="USD"),
                gauge("costlens_unsaved_cost", 300, rank="1", costlens_cost_currency="USD"),
            ),
            labels={"costlens_run_id": "r", "costlens_cost_currency": "USD"},
            description="A crash now would lose work that cost 600 USD, over all ranks.",
        ),
        Case(
            "currencies are not added",
            (
                *rank(0),
                *rank(1),
                gauge("costlens_unsaved_cost", 300, costlens_cost_currency="USD"),
                gauge("costlens_unsaved_cost", 300, rank="1", costlens_cost_currency="EUR"),
            ),
        ),
    ),
)

ALERTS = (_STALE, _FAILING, _SLOW, _UNSAVED)
