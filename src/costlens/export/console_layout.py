"""How the console report is laid out: sections, label and value, facts in a row."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from costlens.export.figures import show_count

__all__ = ["Renderable", "Row", "join", "lay_out", "plural", "section"]

Renderable: TypeAlias = RenderableType
Row: TypeAlias = tuple[str, RenderableType]


def section(title: str, body: Iterable[Renderable]) -> Iterable[Renderable]:
    """Yield a title and its indented body; nothing when the body is empty."""
    parts = list(body)
    if parts:
        yield Text(f"\n{title}", "bold")
        yield Padding(Group(*parts), (0, 0, 0, 2), expand=False)


def join(*facts: str | None) -> str:
    """Return the facts that are known, in a row."""
    return " · ".join(fact for fact in facts if fact)


def lay_out(rows: Iterable[Row]) -> Table:
    """Return labels and values in two columns."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    for label, value in rows:
        table.add_row(label, value)
    return table


def plural(count: int, noun: str) -> str:
    """Return a count with its noun."""
    return f"{show_count(count)} {noun}" + ("" if count == 1 else "s")
