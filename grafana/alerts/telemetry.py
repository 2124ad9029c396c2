"""Alerts on costlens itself: what it loses on the way, and what it costs."""

from __future__ import annotations

from grafana.alerts.model import RUN, Alert, Case, Query
from grafana.alerts.situations import counter, gauge, rank

__all__ = ["ALERTS"]

_EXPORTS_QUERY = Query(
    "Exports by how they ended",
    "promql",
    "sum by (costlens_signal, costlens_export_outcome) "
    '(increase(costlens_telemetry_exports_total{costlens_run_id="$run"}[15m]))',
)
_FAILURES_QUERY = Query(
    "Why exports failed",
    "logql",
    '{service_name=~".+"} | costlens_run_id="$run" | event_name="costlens.export.failed"',
)

_DROPPED = Alert(
    name="CostlensTelemetryDropped",
    area="telemetry",
    severity="warning",
    value="""sum by (costlens_run_id, costlens_drop_place) (
  rate(costlens_telemetry_dropped_total{costlens_drop_place!~"span_limit|quality_limit"}[$rate])
)""",
    bound="> 0",
    scope="and on (costlens_run_id) max by (costlens_run_id) (rank:costlens_live:last_time)",
    hold="soon",
    summary=f"Telemetry of run {RUN} is lost: {{{{ $labels.costlens_drop_place }}}}",
    description="{{ $value | humanize }} items a second are dropped at "
    "{{ $labels.costlens_drop_place }}. The run itself is not harmed, its record is whole.",
    dashboard="reliability",
    traces='{ span.costlens.run.id = "$run" && name = "costlens.period" }',
    meaning="What could not be exported in time is dropped rather than kept for ever, so panels "
    "and searches have gaps. The place is the signal (`traces`, `metrics`, `logs`), the telemetry "
    "`files`, or a buffer of costlens (`recorder`, `device_values`). Limits that are meant "
    "(`span_limit`, `quality_limit`) do not count.",
    checks=(
        "A signal: does its endpoint answer? The first query shows exports that fail; the event "
        "`costlens.export.failed` names the endpoint.",
        "All ranks or one? One: the network of its host. All: the collector; its memory limiter "
        "refuses what is too much.",
        "`recorder`: iterations are faster than they are drained, or the process gets no CPU.",
    ),
    queries=(
        _EXPORTS_QUERY,
        Query(
            "What was dropped, by rank",
            "promql",
            'increase(costlens_telemetry_dropped_total{costlens_run_id="$run"}[15m])',
        ),
        _FAILURES_QUERY,
    ),
    cases=(
        Case(
            "an endpoint for traces is dead",
            (
                *rank(),
                counter("costlens_telemetry_dropped_total", 120, costlens_drop_place="traces"),
            ),
            labels={"costlens_run_id": "r", "costlens_drop_place": "traces"},
            description="2 items a second are dropped at traces. The run itself is not harmed, "
            "its record is whole.",
        ),
        Case(
            "a limit that is meant",
            (
                *rank(),
                counter("costlens_telemetry_dropped_total", 120, costlens_drop_place="span_limit"),
            ),
        ),
        Case(
            "nothing is dropped",
            (*rank(), gauge("costlens_telemetry_dropped_total", 0, costlens_drop_place="traces")),
        ),
    ),
)

_FAILING = Alert(
    name="CostlensExportFailing",
    area="telemetry",
    severity="warning",
    value="""sum by (costlens_run_id, costlens_signal) (
  increase(costlens_telemetry_exports_total{costlens_export_outcome="failure"}[$rare])
)""",
    bound="> 0",
    scope="""unless on (costlens_run_id, costlens_signal)
sum by (costlens_run_id, costlens_signal) (
  increase(costlens_telemetry_exports_total{costlens_export_outcome="success"}[$rare])
) > 0
and on (costlens_run_id) max by (costlens_run_id) (rank:costlens_live:last_time)""",
    hold="soon",
    summary=f"The {{{{ $labels.costlens_signal }}}} of run {RUN} do not get through",
    description="{{ $value | humanize }} exports of {{ $labels.costlens_signal }} failed in "
    "fifteen minutes and none succeeded. The run itself is not harmed, its record is whole.",
    dashboard="reliability",
    traces='{ span.costlens.run.id = "$run" && name = "costlens.period" }',
    meaning="The endpoint of this signal does not answer, or refuses everything, on every rank. "
    "Exports are tried ever more rarely (every five minutes at last) and recover by themselves; "
    "what does not fit into the queue meanwhile is dropped.",
    checks=(
        "`costlens config` and the event `costlens.export.failed` in the log say where it is sent, "
        "and why that fails: refused, no such name, 401, 404.",
        "Does that address answer from the rank's own host (`curl`)? Is `OTEL_EXPORTER_OTLP_"
        "PROTOCOL` the one that is spoken there?",
        "Metrics come through and traces do not: the signals may have endpoints of their own "
        "(`OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`).",
    ),
    queries=(
        _EXPORTS_QUERY,
        _FAILURES_QUERY,
    ),
    cases=(
        Case(
            "an endpoint for traces is dead",
            (
                *rank(),
                counter(
                    "costlens_telemetry_exports_total",
                    0.2,
                    costlens_signal="traces",
                    costlens_export_outcome="failure",
                ),
                gauge(
                    "costlens_telemetry_exports_total",
                    0,
                    costlens_signal="traces",
                    costlens_export_outcome="success",
                ),
            ),
            labels={"costlens_run_id": "r", "costlens_signal": "traces"},
            description="3 exports of traces failed in fifteen minutes and none succeeded. The run "
            "itself is not harmed, its record is whole.",
        ),
        Case(
            "one in two gets through",
            (
                *rank(),
                counter(
                    "costlens_telemetry_exports_total",
                    3,
                    costlens_signal="traces",
                    costlens_export_outcome="failure",
                ),
                counter(
                    "costlens_telemetry_exports_total",
                    3,
                    costlens_signal="traces",
                    costlens_export_outcome="success",
                ),
            ),
        ),
    ),
)

_OVERHEAD = Alert(
    name="CostlensOverheadHigh",
    area="telemetry",
    severity="warning",
    value="run:costlens_overhead:ratio_rate5m",
    bound="> $overhead_ratio",
    hold="steady",
    summary=f"costlens itself takes much of run {RUN}",
    description="Its own thread uses {{ $value | humanizePercentage }} of a CPU while the run "
    "trains.",
    dashboard="reliability",
    traces='{ span.costlens.run.id = "$run" && name = "costlens.rank.period" }'
    " | select(span.costlens.iterations.shown)",
    meaning="Aggregating and exporting should take far less than a hundredth of a CPU. That thread "
    "runs Python code, so part of its time is taken from the training thread.",
    checks=(
        "Is `COSTLENS_WINDOW_S` shorter than its 10 s, or `COSTLENS_ITERATION_SPAN_EVERY` small?",
        "Does somebody watch it (`costlens tune RUN`)? Every iteration has spans then.",
        "Does an endpoint fail (CostlensTelemetryDropped)? Repeating exports takes CPU.",
    ),
    queries=(
        Query(
            "CPU of costlens's thread by rank",
            "promql",
            'rate(costlens_telemetry_overhead_time_seconds_total{costlens_run_id="$run"}[5m])',
        ),
    ),
    cases=(
        Case(
            "a twentieth of a CPU",
            (*rank(), counter("costlens_telemetry_overhead_time_seconds_total", 3)),
            labels={"costlens_run_id": "r"},
            description="Its own thread uses 5% of a CPU while the run trains.",
        ),
        Case(
            "a thousandth",
            (*rank(), counter("costlens_telemetry_overhead_time_seconds_total", 0.06)),
        ),
        Case(
            "while it starts",
            (
                *rank(state="starting", phases={"startup": 1.0}),
                counter("costlens_telemetry_overhead_time_seconds_total", 3),
            ),
        ),
    ),
)

ALERTS = (_FAILING, _DROPPED, _OVERHEAD)
