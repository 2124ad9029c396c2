"""What is special about each kind of panel in Grafana's model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import heatmap
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as models

from grafana.dashboard import Dashboard
from grafana.panel import Column, Kind, Panel, read_threshold
from grafana.queries import RUN, THE_RUN
from grafana.render_parts import SOURCES, map_texts, thresholds

__all__ = ["SHAPES"]

# Units of span attributes by a pattern of their names; the others are counts and words.
_SPAN_UNITS = {
    r"^costlens\.phase\.time\.": "s",
    r"^costlens\.iteration\.duration": "s",
    r"^costlens\.(run|checkpoint\.(stall|write))\.time$": "s",
    r"^costlens\.checkpoint\.size$": "bytes",
    r"^costlens\.gpu\.utilization$": "percentunit",
}


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
    built.color_scheme(builders.FieldColor().mode(models.FieldColorModeId.PALETTE_CLASSIC))
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
    built.graph_mode(common.BigValueGraphMode.NONE).no_value(panel.without)


def _shape_bars(built: Any, panel: Panel, page: Dashboard) -> None:
    built.reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
    built.orientation(common.VizOrientation.HORIZONTAL)
    built.display_mode(common.BarGaugeDisplayMode.BASIC).min(0).no_value(panel.without)


def _shape_heat(built: Any, panel: Panel, page: Dashboard) -> None:
    built.calculate(False).y_axis(heatmap.YAxisConfig().unit(panel.unit))


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
        found["thresholds"] = thresholds(limit, is_bad_below=False).build()
        found["custom.cellOptions"] = {"type": "color-text"}
    if column.texts:
        found["mappings"] = [map_texts(column.texts)]
        found["custom.cellOptions"] = {"type": "color-text"}
    if column.link:
        keep = "&".join(f"${{{name}:queryparam}}" for name in SOURCES.values())
        url = f"/d/{column.link}?var-run=${{__value.text}}&{keep}&${{__url_time_range}}"
        found["links"] = [{"title": "Open this run", "url": url}]
    return [models.DynamicConfigValue(id_val=name, value=value) for name, value in found.items()]


def _shape_spans(built: Any, panel: Panel, page: Dashboard) -> None:
    for pattern, unit in _SPAN_UNITS.items():
        unit_of = models.DynamicConfigValue(id_val="unit", value=unit)
        built.override_by_regexp(f"/{pattern}/", [unit_of])


SHAPES: dict[Kind, Callable[[Any, Panel, Dashboard], None]] = {
    "graph": _shape_graph,
    "span_graph": _shape_graph,
    "number": _shape_number,
    "bars": _shape_bars,
    "table": _shape_table,
    "heat": _shape_heat,
    "states": _shape_states,
    "events": _shape_events,
    "spans": _shape_spans,
    "alerts": _shape_alerts,
}
