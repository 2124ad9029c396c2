"""What an entry of a dashboard is: a question, where its answer comes from, and how it is drawn.

Knows nothing of Grafana's own model; ``render.py`` turns entries into that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from grafana.settings import SETTINGS, Thresholds

__all__ = ["Column", "Kind", "Panel", "Row", "Source", "Target", "logs", "prom", "spans"]

Source = Literal["prometheus", "loki", "tempo"]
Kind = Literal[
    "graph", "number", "bars", "table", "heat", "states", "events", "spans", "span_graph", "alerts"
]


@dataclass(frozen=True, slots=True)
class Target:
    """A query.

    Args:
        query: PromQL, LogQL or TraceQL, with Grafana's variables.
        legend: What a series is called; ``{{label}}`` is filled in.
        source: Which of the dashboard's data sources answers it.
        has_exemplars: Whether points may carry traces.
        is_instant: Whether only the end of the time range is asked for.
    """

    query: str
    legend: str = ""
    source: Source = "prometheus"
    has_exemplars: bool = False
    is_instant: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """How a table shows a field.

    Args:
        name: The heading.
        unit: Grafana's unit; empty for text.
        decimals: Digits behind the point.
        limit: Field of ``Thresholds`` at which the cell turns red.
        link: Uid of the dashboard that a click opens for the run in this cell.
        texts: Words for numbers.
    """

    name: str
    unit: str = ""
    decimals: int | None = None
    limit: str = ""
    link: str = ""
    texts: Mapping[int, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel.

    Args:
        title: The question in a few words.
        about: The question in full, and how to read the answer.
        unit: Grafana's unit.
        targets: The queries.
        kind: How the answer is drawn.
        width: Columns of 24.
        height: Rows of about 30 pixels.
        limit: Field of ``Thresholds`` at which an alert fires: a line, or a colour.
        is_bad_below: Whether values below the limit are bad, not those above.
        stack: Whether series are stacked, as they are or to 100 %.
        decimals: Digits behind the point.
        least: Lower end of the axis, where it is not left to Grafana.
        most: Upper end.
        columns: Of a table, by the field's name, in order; others are hidden.
        texts: Words and colours for numbers.
        without: What a number says where it has no value.
        sort: Of a table, the heading it is sorted by, largest first.
    """

    title: str
    about: str
    unit: str
    targets: tuple[Target, ...]
    kind: Kind = "graph"
    width: int = 8
    height: int = 8
    limit: str = ""
    is_bad_below: bool = False
    stack: Literal["", "normal", "percent"] = ""
    decimals: int | None = None
    least: float | None = None
    most: float | None = None
    columns: Mapping[str, Column] = field(default_factory=dict)
    texts: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    without: str = "unknown"
    sort: str = ""

    @property
    def threshold(self) -> float | None:
        """Return where the alert fires."""
        return read_threshold(self.limit)


@dataclass(frozen=True, slots=True)
class Row:
    """Panels below a heading, in reading order; widths fill lines of 24."""

    title: str
    panels: tuple[Panel, ...]
    is_collapsed: bool = False


def read_threshold(limit: str, thresholds: Thresholds = SETTINGS.thresholds) -> float | None:
    """Return the threshold of this name, None for no name."""
    return float(getattr(thresholds, limit)) if limit else None


def prom(
    query: str, legend: str = "", *, has_exemplars: bool = False, is_instant: bool = False
) -> Target:
    """Return a query in PromQL, on one line."""
    return Target(" ".join(query.split()), legend, "prometheus", has_exemplars, is_instant)


def logs(query: str, legend: str = "") -> Target:
    """Return a query in LogQL, on one line."""
    return Target(" ".join(query.split()), legend, "loki")


def spans(query: str, legend: str = "") -> Target:
    """Return a query in TraceQL, on one line."""
    return Target(" ".join(query.split()), legend, "tempo")
