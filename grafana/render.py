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
from grafana_foundation_sdk.builders import (
    common as common_builders,
)
from grafana_foundation_sdk.builders import (
    dashboard as builders,
)
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import prometheus as prometheus_models
from grafana_foundation_sdk.models import tempo as tempo_models

from grafana.dashboard import Dashboard
from grafana.names import select
from grafana.panel import Column, Panel, Target, read_threshold
from grafana.queries import RANK, RUN, THE_RUN
from grafana.settings import SETTINGS

__all__ = ["TAG", "render"]

TAG = "costlens"
"""Links between the dashboards find them by it."""

SOURCES = {"prometheus": "datasource", "tempo": "traces", "loki": "logs"}
"""The variable that holds each kind of data source."""

_OK, _BAD = "green", "red"
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
        .variables(_variables(page))
        .annotations(_annotations(page))
        .links([_links()])
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
        .thresholds(_thresholds(panel.threshold, is_bad_below=panel.is_bad_below))
    )
    if panel.targets:
        source = panel.targets[0].source
        built.datasource(_source(source))
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
        built.mappings([_mapping(panel.texts)])
    _SHAPES[panel.kind](built, panel, page)
    return built


def _source(kind: str) -> common.DataSourceRef:
    return common.DataSourceRef(type_val=kind, uid=f"${{{SOURCES[kind]}}}")


def _target(target: Target, ref: str, panel: Panel) -> Any:
    source = _source(target.source)
    if target.source == "tempo":
        kind = tempo_models.SearchTableType.SPANS
        query = tempo.Dataquery().query(target.query).query_type("traceql").table_type(kind)
        return query.limit(_MAX_SPANS).ref_id(ref).datasource(source)
    if target.source == "loki":
        query = loki.Dataquery().expr(target.query).ref_id(ref).datasource(source)
        return query.legend_format(target.legend) if target.legend else query
    query = prometheus.Dataquery().expr(target.query).ref_id(ref).datasource(source)
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


def _thresholds(limit: float | None, *, is_bad_below: bool) -> builders.ThresholdsConfig:
    steps = [models.Threshold(value=None, color=_OK)]
    if limit is not None:
        first, second = (_BAD, _OK) if is_bad_below else (_OK, _BAD)
        steps = [models.Threshold(value=None, color=first), models.Threshold(limit, second)]
    return builders.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps)


def _mapping(texts: Any) -> models.ValueMap:
    return models.ValueMap(
        options={
            str(number): models.ValueMappingResult(text=text, color=colour, index=number)
            for number, (text, colour) in texts.items()
        }
    )


# What is special about each kind.


def _shape_graph(built: Any, panel: Panel, page: Dashboard) -> None:
    built.tooltip(
        common_builders.VizTooltipOptions()
        .mode(common.TooltipDisplayMode.MULTI)
        .sort(common.SortOrder.DESCENDING)
    )
    built.legend(
        common_builders.VizLegendOptions()
        .display_mode(common.LegendDisplayMode.LIST)
        .placement(common.LegendPlacement.BOTTOM)
        .show_legend(True)
    )
    # Gaps are gaps: a rank that told nothing was not at its last value.
    built.span_nulls(False).line_width(1).fill_opacity(60 if panel.stack else 0)
    if panel.stack:
        mode = {"normal": common.StackingMode.NORMAL, "percent": common.StackingMode.PERCENT}
        built.stacking(common_builders.StackingConfig().mode(mode[panel.stack]).group("A"))
    if panel.limit:
        style = common_builders.GraphThresholdsStyleConfig()
        built.thresholds_style(style.mode(common.GraphThresholdsStyleMode.DASHED))
    if any(target.has_exemplars for target in panel.targets):
        built.show_points(common.VisibilityMode.NEVER)


def _shape_number(built: Any, panel: Panel, page: Dashboard) -> None:
    built.reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
    built.text_mode(common.BigValueTextMode.VALUE_AND_NAME)
    built.color_mode(
        common.BigValueColorMode.VALUE if panel.limit else common.BigValueColorMode.NONE
    )
    built.graph_mode(common.BigValueGraphMode.NONE).no_value("unknown")


def _shape_bars(built: Any, panel: Panel, page: Dashboard) -> None:
    built.reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
    built.orientation(common.VizOrientation.HORIZONTAL)
    built.display_mode(common.BarGaugeDisplayMode.BASIC).min(0).no_value("unknown")


def _shape_heat(built: Any, panel: Panel, page: Dashboard) -> None:
    built.calculate(False)


def _shape_states(built: Any, panel: Panel, page: Dashboard) -> None:
    built.merge_values(True)


def _shape_events(built: Any, panel: Panel, page: Dashboard) -> None:
    built.show_time(True).wrap_log_message(True).enable_log_details(True)
    built.sort_order(common.LogsSortOrder.DESCENDING)


def _shape_alerts(built: Any, panel: Panel, page: Dashboard) -> None:
    labels = {"runs": f'{{{RUN}=~"$run"}}', "run": f"{{{THE_RUN}}}"}
    built.options(
        {
            "viewMode": "list",
            "groupMode": "default",
            "alertInstanceLabelFilter": labels[page.scope],
            "maxItems": 20,
            "sortOrder": 3,
            "stateFilter": {"firing": True, "pending": True, "noData": False, "normal": False},
        }
    )


def _shape_table(built: Any, panel: Panel, page: Dashboard) -> None:
    fields = list(panel.columns)
    built.transformations(
        [
            models.DataTransformerConfig(id_val="merge", options={}),
            models.DataTransformerConfig(
                id_val="organize",
                options={
                    "excludeByName": {"Time": True, "Value #A": "Value #A" not in fields},
                    "indexByName": {name: index for index, name in enumerate(fields)},
                    "renameByName": {name: panel.columns[name].name for name in fields},
                },
            ),
        ]
    )
    if panel.sort:
        by = common_builders.TableSortByFieldState().display_name(panel.sort).desc(True)
        built.sort_by([by])
    for column in panel.columns.values():
        properties = _cell(column)
        if properties:
            built.override_by_name(column.name, properties)


def _cell(column: Column) -> list[models.DynamicConfigValue]:
    found: dict[str, Any] = {}
    if column.unit:
        found["unit"] = column.unit
    if column.decimals is not None:
        found["decimals"] = column.decimals
    limit = read_threshold(column.limit)
    if limit is not None:
        found["thresholds"] = _thresholds(limit, is_bad_below=False).build()
        found["custom.cellOptions"] = {"type": "color-text"}
    if column.texts:
        found["mappings"] = [_mapping(column.texts)]
        found["custom.cellOptions"] = {"type": "color-text"}
    if column.link:
        keep = "&".join(f"${{{name}:queryparam}}" for name in SOURCES.values())
        url = f"/d/{column.link}?var-run=${{__value.text}}&{keep}&${{__url_time_range}}"
        found["links"] = [{"title": "Open this run", "url": url}]
    return [models.DynamicConfigValue(id_val=name, value=value) for name, value in found.items()]


def _shape_nothing(built: Any, panel: Panel, page: Dashboard) -> None:
    pass


_SHAPES = {
    "graph": _shape_graph,
    "span_graph": _shape_graph,
    "number": _shape_number,
    "bars": _shape_bars,
    "table": _shape_table,
    "heat": _shape_heat,
    "states": _shape_states,
    "events": _shape_events,
    "spans": _shape_nothing,
    "alerts": _shape_alerts,
}


# What stands above the panels.


def _variables(page: Dashboard) -> list[Any]:
    labels = {"prometheus": "Metrics", "tempo": "Traces", "loki": "Logs"}
    sources = [
        builders.DatasourceVariable(SOURCES[kind]).label(label).type(kind)
        for kind, label in labels.items()
    ]
    info = select("costlens.run.info")
    of_team = select("costlens.run.info", SETTINGS.team)
    of_run = select("costlens.run.info", THE_RUN)
    newest_first = models.VariableSort.ALPHABETICAL_DESC
    team = _query_variable("team", f"label_values({info}, costlens_team)")
    run = _query_variable("run", f"label_values({of_team}, {RUN})").sort(newest_first)
    if page.scope == "runs":
        return [*sources, _many(team), _many(run)]
    rank = _query_variable("rank", f"label_values({of_run}, {RANK})")
    rank.sort(models.VariableSort.NUMERICAL_ASC)
    return [*sources, _many(team), run, _many(rank)]


def _query_variable(name: str, query: str) -> builders.QueryVariable:
    return (
        builders.QueryVariable(name)
        .label(name.capitalize())
        .datasource(_source("prometheus"))
        .query({"query": query, "refId": name, "qryType": 1})
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
    )


def _many(variable: builders.QueryVariable) -> builders.QueryVariable:
    everything = models.VariableOption(selected=True, text="All", value="$__all")
    # ".*" also fits what has no such label, and no list of ten thousand ranks is sent.
    return variable.multi(True).include_all(True).all_value(".*").current(everything)


def _annotations(page: Dashboard) -> list[Any]:
    if page.scope == "runs":
        return []
    starting = select(
        "costlens.run.state", THE_RUN, 'costlens_rank="0"', 'costlens_state="starting"'
    )
    errors = select("hw.errors", THE_RUN, 'error_type=~"uncorrected|xid|row_remap_failure"')
    return [
        _annotation("attempts", "An attempt starts", "blue", f"{starting} == 1", RUN),
        _annotation(
            "GPU errors",
            "GPU {{hw_id}}: {{error_type}}",
            "red",
            f"increase({errors}[$__rate_interval]) > 0",
            RANK,
        ),
    ]


def _annotation(name: str, title: str, colour: str, query: str, tag: str) -> Any:
    return (
        builders.AnnotationQuery()
        .name(name)
        .datasource(_source("prometheus"))
        .enable(True)
        .icon_color(colour)
        .expr(query)
        .title_format(title)
        .tag_keys(tag)
    )


def _links() -> Any:
    return (
        builders.DashboardLink(TAG)
        .type(models.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .include_vars(True)
        .keep_time(True)
        .as_dropdown(False)
        .target_blank(False)
    )
