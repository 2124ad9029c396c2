"""The section on where the time went, over the run. Pure."""

from __future__ import annotations

from decimal import Decimal

from costlens.core.run_record import RunRecord
from costlens.export.figures import money_decimals, show_duration, show_money, show_share
from costlens.export.page.charts import COLUMN_X, Spec, hover, quantity, scale_of
from costlens.export.page.parts import Cell, Chart, Figure, Section, Table, known, unknown
from costlens.export.page.rows import Rows
from costlens.export.page.windows import History

__all__ = ["describe_ledger", "describe_provenance"]


def describe_ledger(record: RunRecord, history: History, rows: Rows) -> Section:
    """Return the section: shares of time per phase in each column, and the totals behind it."""
    key, title = "ledger", "Where the time went"
    total_s = record.time_s.get("total", 0.0)
    if total_s <= 0:
        return Section(key, title, unknown="no time has passed yet")
    charts = [_draw(rows)] if rows.phases else []
    missing = [] if charts else ["How it went over time is unknown: no window has closed yet."]
    return Section(
        key,
        title,
        lead=_lead(record, total_s),
        charts=charts,
        tables=[_tabulate(record, total_s)],
        notes=[*missing, *describe_provenance(history)],
    )


def describe_provenance(history: History) -> list[str]:
    """Return what charts over time are made of, where that is not everything."""
    if not history.columns:
        return list(history.problems)
    notes = []
    if history.num_windows > len(history.columns):
        notes.append(
            f"{history.num_windows:,} windows are drawn as {len(history.columns):,} columns: "
            "shares are of all windows in a column, lines are means, bands reach from the least "
            "to the greatest value."
        )
    if len(history.ranks) < history.num_ranks:
        read = f"rank {history.ranks[0]}" if len(history.ranks) == 1 else f"{len(history.ranks)}"
        notes.append(f"Charts over time are of {read} of {history.num_ranks} ranks; totals of all.")
    if history.num_windows < history.num_expected:
        lacking = history.num_expected - history.num_windows
        notes.append(f"{lacking:,} windows that the records speak of are on no disk that was read.")
    return [*notes, *history.problems]


def _lead(record: RunRecord, total_s: float) -> str:
    spent = {name: s for name, s in record.time_s.items() if name != "total" and s > 0}
    largest = sorted(spent, key=lambda name: (-spent[name], name))[:3]
    told = ", ".join(f"{_words(name)} {show_share(spent[name] / total_s)}" for name in largest)
    ranks = f" over {len(record.ranks)} ranks" if len(record.ranks) > 1 else ""
    return f"{show_duration(total_s)} of paid time{ranks}: most of it {told}."


def _words(name: str) -> str:
    return name.replace("_", " ")


def _draw(rows: Rows) -> Chart:
    phases = list(rows.phases)
    axis = {"format": ".0%", "tickCount": 4}
    hue = {"field": "phase", "type": "nominal", "legend": None, "scale": scale_of(phases, "phase")}
    spec: Spec = {
        "data": {"name": "columns"},
        "height": 240,
        "layer": [
            {
                "transform": [
                    {"fold": phases, "as": ["phase", "share"]},
                    {"filter": "datum.share > 0"},
                    {"stack": "share", "groupby": ["a"], "as": ["low", "high"]},
                ],
                # A line of its own colour closes the seam between two columns.
                "mark": {"type": "rect", "strokeWidth": 0.6},
                "encoding": {
                    **COLUMN_X,
                    "y": quantity("low", axis=axis, scale={"domain": [0, 1]}),
                    "y2": {"field": "high"},
                    "color": hue,
                    "stroke": hue,
                },
            },
            hover(
                {"a": ("from", "time"), "b": ("to", "time"), "t": ("attempt", "d")}
                | {name: (_words(name), ".1%") for name in phases}
            ),
        ],
    }
    total_s = sum(rows.phase_s.values())
    ordered = sorted(phases, key=lambda name: -rows.phase_s[name])
    said = ", ".join(f"{_words(name)} {rows.phase_s[name] / total_s:.1%}" for name in ordered)
    return Chart(
        "ledger-chart",
        "Share of time by phase, over the run",
        f"Over the windows that were read: {said}.",
        spec,
        legend=[(_words(name), f"phase-{name.replace('_', '-')}") for name in phases],
    )


def _tabulate(record: RunRecord, total_s: float) -> Table:
    cost = record.cost
    decimals = None if cost.total is None else money_decimals(cost.total)
    spent = {name: s for name, s in record.time_s.items() if name != "total" and s > 0}
    rows: list[list[Cell]] = []
    for name in [*sorted(spent, key=lambda name: (-spent[name], name)), "total"]:
        seconds = record.time_s[name]
        rows.append(
            [
                _words(name),
                known(show_duration(seconds), seconds, f"time_s.{name}"),
                Figure(show_share(seconds / total_s)),
                _money(record, name, decimals),
            ]
        )
    title = f"money ({cost.currency})" if cost.currency else "money"
    return Table(
        "Time and money by phase, all attempts and ranks", ("", "time", "share", title), rows
    )


def _money(record: RunRecord, name: str, decimals: int | None) -> Figure:
    cost = record.cost
    amount = cost.total if name == "total" else cost.by_phase.get(name)
    path = "cost.total" if name == "total" else f"cost.by_phase.{name}"
    if cost.total is None:
        return unknown(cost.unknown or "prices are in several currencies", path)
    if amount is None or Decimal(amount) == 0:
        return known(show_money("0", decimals=decimals), amount or "0", path)
    return known(show_money(amount, decimals=decimals), amount, path)
