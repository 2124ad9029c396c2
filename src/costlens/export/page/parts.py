"""What sections of the page are made of: figures, tables and charts, without a word of HTML.

Texts from outside may be in any of them: the template escapes all of them, and only there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Cell", "Chart", "Figure", "Section", "Table", "known", "plain_number", "unknown"]

Tone = Literal["good", "bad", "warn", "muted", ""]


@dataclass(frozen=True, slots=True)
class Figure:
    """One value as it is read, with the exact one behind it.

    Args:
        text: What a person reads.
        value: The exact value, as it stands in the record; None for what is no number, or unknown.
        path: Where in the merged record it stands, such as ``cost.total``.
        why: Why it is unknown, or what it is of; shown beside it.
        tone: How it is coloured.
        is_unknown: Whether nothing is known.
    """

    text: str
    value: str | None = None
    path: str | None = None
    why: str | None = None
    tone: Tone = ""
    is_unknown: bool = False


Cell = Figure | str
"""What a table holds; a string is a name or a sentence."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells.

    Args:
        caption: What the rows are.
        titles: One a column.
        rows: As many cells each as there are titles; the first names the row.
        note: What is left out, or how to read it.
        is_open: Whether it is shown without being asked for.
    """

    caption: str
    titles: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str | None = None
    is_open: bool = False

    @property
    def numeric(self) -> list[bool]:
        """Return for each column whether it holds numbers, which stand to the right."""
        columns = zip(*self.rows, strict=True) if self.rows else [() for _ in self.titles]
        return [
            any(isinstance(c, Figure) and c.value is not None for c in cells) for cells in columns
        ]


@dataclass(frozen=True, slots=True)
class Chart:
    """A Vega-Lite specification without theme and width, which the page adds.

    Args:
        key: Unique on the page; letters and dashes.
        title: What it shows.
        description: What a person who does not see it has to know.
        spec: The specification; data named ``columns`` is shared by the charts of the page.
        legend: Names and the colours they have in it.
    """

    key: str
    title: str
    description: str
    spec: dict[str, Any]
    legend: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """One part of the page.

    Args:
        key: Unique on the page; letters and dashes.
        title: The heading.
        lead: One sentence that says what it comes to.
        charts: The charts.
        tables: The tables behind them.
        notes: What to know about them, a sentence each.
        unknown: Why there is nothing to show.
    """

    key: str
    title: str
    lead: str = ""
    charts: Sequence[Chart] = ()
    tables: Sequence[Table] = ()
    notes: Sequence[str] = field(default_factory=tuple)
    unknown: str | None = None


def known(text: str, value: object, path: str | None = None, tone: Tone = "") -> Figure:
    """Return a figure of a value that is known."""
    return Figure(text, str(value), path, tone=tone)


def unknown(why: str, path: str | None = None) -> Figure:
    """Return the figure of a value that is not known, with the reason."""
    return Figure("unknown", None, path, why, "muted", is_unknown=True)


def plain_number(value: float | None, digits: int = 5) -> float | None:
    """Return a number for a chart: few digits, and None for what no axis can place."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{digits}g}")
