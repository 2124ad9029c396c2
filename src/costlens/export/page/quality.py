"""The section on what the money bought: quality against what had been spent by then. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from costlens.core.run_record import RunRecord
from costlens.core.training_records import QualityPart
from costlens.export.figures import show_count, show_duration, show_money, show_value
from costlens.export.page.charts import Spec, colour, hover, quantity
from costlens.export.page.parts import Cell, Chart, Figure, Section, Table, known, unknown
from costlens.export.page.rows import Rows

__all__ = ["describe_quality"]

_FEW = 60


def describe_quality(record: RunRecord, rows: Rows) -> Section:
    """Return the section: each metric over money, or over paid hours where no price is known."""
    key, title = "quality", "Quality against money"
    if not record.quality:
        why = "no quality metric has been logged: iteration.log(loss=…), or Lightning's self.log"
        return Section(key, title, unknown=why)
    charts = [_draw(record, rows, name, metric) for name, metric in rows.metrics.items()]
    hidden = len(record.quality) - len(charts)
    notes = [] if rows.currency else [f"Drawn over paid hours: {_no_money(record)}."]
    if hidden > 0 and charts:
        what = "One metric" if hidden == 1 else f"{hidden} metrics"
        notes.append(f"{what} without a chart: a constant, or one too many.")
    if not charts:
        notes.append("How it moved over time is unknown: no window that was read holds two values.")
    return Section(
        key,
        title,
        lead=_lead(record),
        charts=charts,
        tables=[_tabulate(record)],
        notes=notes,
    )


def _no_money(record: RunRecord) -> str:
    return record.cost.unknown or "a part of the run has no price, or another currency"


def _lead(record: RunRecord) -> str:
    for name in sorted(record.quality, key=lambda name: (not name.startswith("val"), name)):
        part = record.quality[name]
        if part.best is not None and part.cost_to_best is not None:
            money = show_money(part.cost_to_best, record.cost.currency)
            return f"The best {name}, {show_value(part.best)}, was reached after {money}."
    return "What each metric came to, and after how much paid time."


def _draw(record: RunRecord, rows: Rows, key: str, metric: str) -> Chart:
    field, unit = ("w", rows.currency) if rows.currency else ("h", "hours paid")
    # A column's values lie between what was spent where it begins and where it ends.
    x: Spec = {"x": quantity(field, unit, axis={"grid": False, "format": ",.4~g", "tickCount": 5})}
    y = quantity(f"{key}_last", None, axis={"tickCount": 4}, scale={"zero": False})
    valid = {"filter": f"isValid(datum.{key}_last) && isValid(datum.{field})"}
    point = {"point": {"fill": colour("accent"), "size": 24}} if len(rows.rows) <= _FEW else {}
    spec: Spec = {
        "data": {"name": "columns"},
        "height": 150,
        "transform": [valid],
        "layer": [
            {
                "mark": {"type": "rule", "stroke": colour("accent"), "strokeOpacity": 0.3},
                "encoding": {
                    **x,
                    "y": {**y, "field": f"{key}_least"},
                    "y2": {"field": f"{key}_most"},
                },
            },
            {
                "mark": {"type": "line", "stroke": colour("accent"), "strokeWidth": 1.75, **point},
                "encoding": {**x, "y": y, "detail": {"field": "t", "type": "nominal"}},
            },
            _near(
                x,
                {
                    field: (unit or "", ",.4~g"),
                    f"{key}_last": ("last", ",.5~g"),
                    f"{key}_least": ("least", ",.5~g"),
                    f"{key}_most": ("most", ",.5~g"),
                    "a": ("from", "time"),
                },
            ),
        ],
    }
    part = record.quality.get(metric)
    said = "" if part is None else f" Last {show_value(part.last)}, best {show_value(part.best)}."
    return Chart(f"quality-{key}", metric, f"{metric} over {unit}.{said}", spec)


def _near(x: Spec, fields: Mapping[str, tuple[str, str]]) -> Spec:
    """Return a layer that tells the values of the column whose money is nearest."""
    layer = hover(fields, x)
    layer["params"][0]["select"] |= {"nearest": True, "encodings": ["x"]}
    layer["mark"] = {"type": "rule", "stroke": colour("text")}
    layer["encoding"]["strokeOpacity"] = layer["encoding"].pop("fillOpacity")
    layer["encoding"]["strokeOpacity"]["condition"]["value"] = 0.5
    return layer


def _tabulate(record: RunRecord) -> Table:
    titles = ("metric", "last", "best", "best after", "cost to best", "mean", "not finite")
    rows = [_row(record, name, part) for name, part in sorted(record.quality.items())]
    return Table("Quality metrics of the newest attempt that logged them", titles, rows)


def _row(record: RunRecord, name: str, part: QualityPart) -> list[Cell]:
    path = f"quality.{name}"
    after = unknown("no best value", f"{path}.best_after_s")
    if part.best_after_s is not None:
        after = known(show_duration(part.best_after_s), part.best_after_s, f"{path}.best_after_s")
    cost = unknown(_no_money(record), f"{path}.cost_to_best")
    if part.cost_to_best is not None:
        shown = show_money(part.cost_to_best, record.cost.currency)
        cost = known(shown, part.cost_to_best, f"{path}.cost_to_best")
    num = part.num_nonfinite
    return [
        name,
        _value(part.last, f"{path}.last"),
        _value(part.best, f"{path}.best"),
        after,
        cost,
        _value(part.mean, f"{path}.mean"),
        known(show_count(num), num, f"{path}.num_nonfinite", tone="bad" if num else ""),
    ]


def _value(value: float | None, path: str) -> Figure:
    if value is None:
        return unknown("no finite value", path)
    return known(show_value(value), value, path)
