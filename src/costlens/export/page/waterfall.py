"""The section that leads from what was paid to what was productive. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from costlens.core.goodput_record import SpentPart
from costlens.core.run_record import RunRecord
from costlens.export.figures import money_decimals, show_duration, show_money, show_share
from costlens.export.page.charts import Spec, colour, quantity, tip
from costlens.export.page.parts import Cell, Chart, Figure, Section, Table, known, unknown

__all__ = ["describe_waterfall"]

_MAX_CAUSES = 10
_MIN_SHARE = 0.0005
_ROOM = 0.4  # of the chart: what a figure takes on a phone


@dataclass(frozen=True, slots=True)
class _Step:
    """One bar: seconds, money where it is known, and what it is."""

    label: str
    spent: SpentPart
    kind: str
    path: str | None = None


def describe_waterfall(record: RunRecord) -> Section:
    """Return the section: paid time less each cause of waste, the largest first."""
    key, title = "waterfall", "From paid to productive"
    total_s = record.time_s.get("total", 0.0)
    if total_s <= 0:
        return Section(key, title, unknown="no time has been paid for yet")
    steps = _make_steps(record, total_s)
    has_money = record.cost.total is not None and all(s.spent.money is not None for s in steps)
    return Section(
        key,
        title,
        lead=_lead(record),
        charts=[_draw(record, steps, has_money=has_money)],
        tables=[_tabulate(record, steps, total_s)],
        notes=_notes(record, has_money=has_money),
    )


def _make_steps(record: RunRecord, total_s: float) -> list[_Step]:
    part = record.goodput
    causes = sorted(part.badput.items(), key=lambda item: (-item[1].time_s, item[0]))
    shown = [(n, s) for n, s in causes if s.time_s / total_s >= _MIN_SHARE or n == "lost_work"]
    shown = shown[:_MAX_CAUSES]
    names = {name for name, _ in shown}
    rest = [spent for name, spent in causes if name not in names and spent.time_s > 0]
    steps = [
        _Step("paid", SpentPart(time_s=total_s, money=record.cost.total), "paid", "cost.total")
    ]
    steps += [
        _Step(name.replace("_", " "), spent, "waste", f"goodput.badput.{name}")
        for name, spent in shown
        if spent.time_s > 0
    ]
    if rest:
        steps.append(_Step(f"{len(rest)} smaller causes", _add(rest), "waste"))
    if part.productive is not None:
        steps.append(_Step("productive", part.productive, "productive", "goodput.productive"))
    else:
        steps.append(_Step("training", part.training, "training", "goodput.training"))
    return steps


def _add(parts: Sequence[SpentPart]) -> SpentPart:
    amounts = [part.money for part in parts]
    money = None if None in amounts else f"{sum(Decimal(m) for m in amounts if m):f}"
    return SpentPart(time_s=sum(part.time_s for part in parts), money=money)


def _lead(record: RunRecord) -> str:
    share, currency = record.goodput.share, record.cost.currency
    if share is None:
        return (
            "How much of the training survived is unknown: nobody tells at which steps it went on."
        )
    productive = record.goodput.productive
    if productive is None or productive.money is None or record.cost.total is None:
        return f"{show_share(share)} of paid time went into steps that trained and survived."
    return (
        f"Of {show_money(record.cost.total, currency)} paid, "
        f"{show_money(productive.money, currency)} ({show_share(share)}) went into steps that "
        "trained and survived."
    )


def _notes(record: RunRecord, *, has_money: bool) -> list[str]:
    notes = []
    if not has_money:
        why = record.cost.unknown or "a part of the run has no price"
        notes.append(f"Bars are time, not money: {why}.")
    unpaid = [f"{name} {show_duration(s)}" for name, s in record.goodput.unpaid_s.items() if s > 0]
    if unpaid:
        notes.append(f"Not paid for, and in no bar: {', '.join(unpaid)}.")
    return notes


def _list_rows(record: RunRecord, steps: Sequence[_Step], *, has_money: bool) -> list[Spec]:
    """Return the chart's data: where each step begins and ends, in money or in hours."""
    rows: list[Spec] = []
    level = 0.0
    for step in steps:
        size = float(step.spent.money or 0) if has_money else step.spent.time_s / 3600
        start = 0.0 if step.kind != "waste" else level - size
        level = size if step.kind == "paid" else max(0.0, level - size)
        rows.append({"label": step.label, "from": start, "to": start + size, "kind": step.kind})
        rows[-1] |= {"size": size, "said": _say(step, record, has_money=has_money)}
        rows[-1]["side"] = _place(start, start + size, rows[0]["to"])
        rows[-1]["share"] = step.spent.time_s / steps[0].spent.time_s
    return rows


def _draw(record: RunRecord, steps: Sequence[_Step], *, has_money: bool) -> Chart:
    unit = record.cost.currency or "" if has_money else "hours"
    rows = _list_rows(record, steps, has_money=has_money)
    kinds = ["paid", "waste", "productive", "training"]
    hue = {
        "field": "kind",
        "type": "nominal",
        "legend": None,
        "scale": {"domain": kinds, "range": [colour(f"kind-{kind}") for kind in kinds]},
    }
    told = {"label": ("what", ""), "size": (unit, ",.4~g"), "share": ("share of paid time", ".1%")}
    x = quantity("from", unit, axis={"tickCount": 5, "format": ",.4~g"})
    bar = {"type": "bar", "cornerRadius": 3, "height": {"band": 0.72}}
    spec: Spec = {
        "data": {"values": rows},
        "height": 30 * len(steps),
        "encoding": {
            "y": {
                "field": "label",
                "type": "nominal",
                "sort": [step.label for step in steps],
                "axis": {"title": None, "ticks": False, "domain": False, "labelLimit": 150},
            },
            "tooltip": tip(told),
        },
        "layer": [
            {"mark": bar, "encoding": {"x": x, "x2": {"field": "to"}, "color": hue}},
            *(_write(side, x) for side in sorted({row["side"] for row in rows})),
        ],
    }
    said = "; ".join(f"{row['label']} {row['share']:.1%}" for row in rows[1:])
    return Chart("waterfall-chart", "From paid to productive", f"Of all paid time: {said}.", spec)


def _place(start: float, end: float, whole: float) -> str:
    """Return where the figure of a bar has room."""
    if end - start > _ROOM * whole:
        return "inside"
    return "left" if start > _ROOM * whole else "right"


def _write(side: str, x: Spec) -> Spec:
    """Return the layer with the figures on one side of the bars, or in them."""
    looks: dict[str, Spec] = {
        "inside": {"align": "left", "dx": 8, "fill": colour("on-bar"), "fontWeight": 600},
        "left": {"align": "right", "dx": -6, "fill": colour("text")},
        "right": {"align": "left", "dx": 6, "fill": colour("text")},
    }
    field = "to" if side == "right" else "from"
    return {
        "transform": [{"filter": f"datum.side == '{side}'"}],
        "mark": {"type": "text", **looks[side]},
        "encoding": {"x": {**x, "field": field}, "text": {"field": "said"}},
    }


def _say(step: _Step, record: RunRecord, *, has_money: bool) -> str:
    if not has_money or step.spent.money is None:
        return show_duration(step.spent.time_s)
    return show_money(step.spent.money, record.cost.currency)


def _tabulate(record: RunRecord, steps: Sequence[_Step], total_s: float) -> Table:
    decimals = None if record.cost.total is None else money_decimals(record.cost.total)
    rows: list[list[Cell]] = []
    for step in steps:
        seconds = step.spent.time_s
        path = None if step.path is None else step.path.replace("cost.total", "time_s.total")
        time_path = path if path is None or path.startswith("time_s") else f"{path}.time_s"
        share = Figure(show_share(seconds / total_s))
        rows.append(
            [
                step.label,
                known(show_duration(seconds), seconds, time_path),
                share,
                _money(record, step, decimals),
            ]
        )
    title = f"money ({record.cost.currency})" if record.cost.currency else "money"
    return Table("Paid time by what came of it", ("", "time", "share", title), rows)


def _money(record: RunRecord, step: _Step, decimals: int | None) -> Figure:
    if step.spent.money is None:
        return unknown(record.cost.unknown or "prices are missing or in several currencies")
    path = step.path
    if path is not None and path != "cost.total":
        path = f"{path}.money"
    return known(show_money(step.spent.money, decimals=decimals), step.spent.money, path)
