"""Turns dashboards into the model of Grafana's own SDK, with the conventions that hold everywhere.

Data sources are variables, panels have ids in reading order, times are UTC, and nothing can be
edited in place: what is changed by hand is lost with the next start.
"""

from __future__ import annotations

from string import ascii_uppercase
from typing import Any

from grafana_foundation_sdk.builders import (
    bargauge,
    heatmap,
    logs,
    loki,
    prometheus,
    stat,
    statetimeline,
    table,
    tempo,
    timeseries,
)
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import prometheus as prometheus_models
from grafana_foundation_sdk.models import tempo as tempo_models

from grafana.dashboard import Dashboard
from grafana.panel import Panel, Target
from grafana.render_controls import TAG, links, marks, variables
from grafana.render_parts import map_texts, refer, thresholds
from grafana.render_shapes import SHAPES

__all__ = ["render"]

_REFRESH = "30s"
_MAX_SPANS = 100

_PANELS: dict[str, Any] = {
    "graph": timeseries.Panel,
    "number": stat.Panel,
    "bars": bargauge.Panel,
    "table": table.Panel,
    "heat": heatmap.Panel,
    "states": statetimeline.Panel,
    "events": logs.Panel,
    "spans": table.Panel,
    "span_graph": timeseries.Panel,
    "alerts": lambda: builders.Panel().type("alertlist"),
}


def render(page: Dashboard) -> models.Dashboard:
    """Return a dashboard in Grafana's model."""
    built = (
        builders.Dashboard(page.title)
        .uid(page.uid)
        .description(page.about)
        .tags([TAG])
        .readonly()
        .timezone("utc")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .time(page.since, "now")
        .refresh(_REFRESH)
        .variables(variables(page))
        .annotations(marks(page))
        .links([links()])
    )
    number = 0
    for row in page.rows:
        number += 1
        built.with_row(builders.Row(row.title).id(number))
        for panel in row.panels:
            number += 1
            built.with_panel(_panel(panel, page).id(number))
    return built.build()


def _panel(panel: Panel, page: Dashboard) -> Any:
    built = (
        _PANELS[panel.kind]()
        .title(panel.title)
        .description(panel.about)
        .span(panel.width)
        .height(panel.height)
        .unit(panel.unit)
        .thresholds(thresholds(panel.threshold, is_bad_below=panel.is_bad_below))
    )
    if panel.targets:
        source = panel.targets[0].source
        built.datasource(refer(source))
        built.targets(
            [_target(t, ref, panel) for t, ref in zip(panel.targets, ascii_uppercase, strict=False)]
        )
    if panel.decimals is not None:
        built.decimals(panel.decimals)
    if panel.least is not None:
        built.min(panel.least)
    if panel.most is not None:
        built.max(panel.most)
    if panel.texts:
        built.mappings([map_texts(panel.texts)])
    SHAPES[panel.kind](built, panel, page)
    return built


def _target(target: Target, ref: str, panel: Panel) -> Any:
    make = {"tempo": _tempo_query, "loki": _loki_query, "prometheus": _prometheus_query}
    return make[target.source](target, panel).ref_id(ref).datasource(refer(target.source))


def _tempo_query(target: Target, panel: Panel) -> Any:
    kind = tempo_models.SearchTableType.SPANS
    query = tempo.Dataquery().query(target.query).query_type("traceql").table_type(kind)
    return query.limit(_MAX_SPANS)


def _loki_query(target: Target, panel: Panel) -> Any:
    query = loki.Dataquery().expr(target.query)
    return query.legend_format(target.legend) if target.legend else query


def _prometheus_query(target: Target, panel: Panel) -> Any:
    query = prometheus.Dataquery().expr(target.query)
    if target.legend:
        query.legend_format(target.legend)
    if target.has_exemplars:
        query.exemplar(True)
    query.instant() if target.is_instant else query.range()
    if panel.kind == "table":
        query.format(prometheus_models.PromQueryFormat.TABLE)
    if panel.kind == "heat":
        query.format(prometheus_models.PromQueryFormat.HEATMAP)
    return query
