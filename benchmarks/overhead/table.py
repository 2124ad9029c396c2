"""Figures of the comparison and how they are printed."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Added:
    """What a subject adds to a bare step.

    Args:
        median_us: Of the training thread's CPU, over cycles.
        mad_us: Median absolute deviation of the cycles from it.
    """

    median_us: float
    mad_us: float


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Args:
        name: Of the subject.
        added: To the training thread's CPU; None if the subject could not be measured.
        wall: To the time of a step; None is not measured.
        behind_us: CPU a step of its other threads and of its processes; None is not measured.
        delivers: What one gets for it.
    """

    name: str
    added: Added | None
    wall: Added | None = None
    behind_us: tuple[float, float] | None = None
    delivers: str = ""


def compare(costs_us: Sequence[float], bare_us: Sequence[float]) -> Added:
    """Return what was added, from pairs of the same cycle."""
    added = [cost - bare for cost, bare in zip(costs_us, bare_us, strict=True)]
    median = statistics.median(added)
    return Added(median, statistics.median(abs(one - median) for one in added))


def _cell(us: float) -> str:
    if us < 0.05:  # less than is seen behind a bare step
        return "–"
    return f"{us:.1f}" if us < 10 else f"{us:.0f}"


def make_table(title: str, rows: Sequence[Row]) -> list[str]:
    """Return the lines of a Markdown table, without the columns that nobody has figures for.

    Args:
        title: Head of the first column.
        rows: In the order of the table.
    """
    has_wall = any(row.wall for row in rows)
    has_behind = any(row.behind_us for row in rows)
    heads = [title, "training thread"]
    heads += ["wall"] * has_wall + ["its threads", "its processes"] * has_behind + ["delivers"]
    lines = [heads, ["---", *["---:"] * (len(heads) - 2), "---"]]
    for row in rows:
        behind = ["", ""] if row.behind_us is None else [_cell(us) for us in row.behind_us]
        cells = [row.name, _added(row.added), *[_added(row.wall)] * has_wall]
        lines.append([*cells, *behind * has_behind, row.delivers])
    return ["| " + " | ".join(cells).rstrip() + " |" for cells in lines]


def _added(added: Added | None) -> str:
    return "" if added is None else f"{added.median_us:+.1f} ± {added.mad_us:.1f}"
