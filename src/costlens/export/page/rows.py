"""The columns as rows of data that the charts of the page share. Pure.

Keys are short, for there are hundreds of rows: ``a`` and ``b`` are where a column begins and ends,
``m`` its middle, all in Unix milliseconds; ``t`` its attempt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from costlens.core.clock import NS_PER_S
from costlens.core.phases import NAMES
from costlens.core.run_record import RunRecord
from costlens.export.page.columns import Column, Spread
from costlens.export.page.parts import plain_number
from costlens.export.page.spending import SpendingClock

__all__ = ["MAX_METRICS", "Rows", "make_rows", "span_keys"]

MAX_METRICS = 6
"""Quality metrics that get a chart; the table has all."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rows:
    """What the charts over time are drawn from.

    Args:
        rows: One a column.
        phases: Phases that took any time, in their order; a row holds the share of each.
        phase_s: Seconds of each in all columns.
        uses: Fields of ``UsePart`` that are known anywhere.
        metrics: Names of quality metrics by the key that rows have them under.
        currency: What money is in; None where it is unknown.
        unit: What durations of iterations are in: ms or s.
    """

    rows: Sequence[Row]
    phases: Sequence[str]
    phase_s: Mapping[str, float]
    uses: Sequence[str]
    metrics: Mapping[str, str]
    currency: str | None
    unit: str

    @property
    def has_iterations(self) -> bool:
        """Return whether any iteration was timed."""
        return any("i" in row for row in self.rows)


def span_keys(name: str) -> tuple[str, str, str]:
    """Return the keys of the mean, the least and the most of a measured value."""
    return name, f"{name}_least", f"{name}_most"


def make_rows(record: RunRecord, columns: Sequence[Column]) -> Rows:
    """Return the rows of the page.

    Args:
        record: The merged record; it tells the money.
        columns: The columns, in the order of time.
    """
    phase_ns: Counter[str] = Counter()
    for column in columns:
        phase_ns.update(column.phase_ns)
    phases = [name for name in NAMES if phase_ns[name]]
    metrics = {f"q{n}": name for n, name in enumerate(_choose_metrics(record, columns))}
    clock = SpendingClock(record)
    median_s = record.iteration_time.median_s
    unit_s = 1.0 if median_s is not None and median_s >= 1.0 else 1e-3
    return Rows(
        rows=[_make_row(column, phases, metrics, clock, unit_s) for column in columns],
        phases=phases,
        phase_s={name: phase_ns[name] / NS_PER_S for name in phases},
        uses=sorted({name for column in columns for name in column.use}),
        metrics=metrics,
        currency=clock.currency,
        unit="s" if unit_s == 1.0 else "ms",
    )


def _choose_metrics(record: RunRecord, columns: Iterable[Column]) -> list[str]:
    """Return the metrics to draw: those of validation first, then by name; no constant ones."""
    values: dict[str, Spread] = {}
    for column in columns:
        for name, spread in column.quality.items():
            values.setdefault(name, Spread()).merge(spread)
    moving = [name for name, spread in values.items() if spread.least < spread.most]
    chosen = [name for name in moving if name in record.quality] or moving
    return sorted(chosen, key=lambda name: (not name.startswith(("val", "test")), name))[
        :MAX_METRICS
    ]


def _make_row(
    column: Column,
    phases: Sequence[str],
    metrics: Mapping[str, str],
    clock: SpendingClock,
    unit_s: float,
) -> Row:
    total_ns = sum(column.phase_ns.values())
    row: Row = {
        "a": round(column.start_s * 1000),
        "m": round((column.start_s + column.end_s) * 500),
        "b": round(column.end_s * 1000),
        "t": column.attempts[-1],
        "h": plain_number(clock.hours_at(column.end_s), 7),
    }
    if (money := clock.money_at(column.end_s)) is not None:
        row["w"] = plain_number(money, 7)
    for name in phases if total_ns else ():
        row[name] = plain_number(column.phase_ns[name] / total_ns)
    if column.iteration.weight > 0:
        row |= _span("i", column.iteration, 1 / unit_s)
    for name, spread in column.use.items():
        row |= _span(name, spread)
    for key, name in metrics.items():
        if name in column.quality:
            row |= _span(key, column.quality[name])
            row[f"{key}_last"] = plain_number(column.quality[name].last)
    return row


def _span(name: str, spread: Spread, factor: float = 1.0) -> Row:
    mean, least, most = span_keys(name)
    told = {mean: spread.mean, least: spread.least, most: spread.most}
    scaled = {key: None if value is None else value * factor for key, value in told.items()}
    return {key: plain_number(value) for key, value in scaled.items()}
