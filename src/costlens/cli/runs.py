"""``costlens runs``: all runs of a folder in a table, the newest first."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import typer

from costlens.cli.options import Directory, JsonFlag, load_config, make_console, print_json
from costlens.errors import CostlensError, RecordError

if TYPE_CHECKING:
    from rich.table import Table

    from costlens.core.run_record import RunRecord
    from costlens.storage.store import Store

__all__ = ["runs"]

UNKNOWN = "–"


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run in the list; a field that is not known is None."""

    id: str
    state: str
    started: float | None = None
    wall_s: float | None = None
    optimizer_steps: int | None = None
    tokens: int | None = None
    cost: str | None = None
    currency: str | None = None
    is_partial: bool = False


def runs(directory: Directory = None, as_json: JsonFlag = False) -> None:
    """List the runs: state, start, duration, steps, tokens and cost."""
    from costlens.storage.store import Store

    store = Store(load_config(dir=directory).run_dir)
    rows = _read_rows(store, time.time())
    if as_json:
        print_json(json.dumps([asdict(row) for row in rows], indent=2))
    elif rows:
        make_console(is_table=True).print(_table(rows), markup=False, highlight=False)
    else:
        typer.echo(f"no runs in {store.shown_url}")


def _read_rows(store: Store, now: float) -> list[RunRow]:
    from costlens.export.record import read_run
    from costlens.observe.last_words import witness_end
    from costlens.storage.run_folder import RunFolder
    from costlens.storage.runs import list_runs

    rows = []
    for run_id in list_runs(store):
        try:
            record = read_run(RunFolder(store, run_id), now, witness_end)
            rows.append(_row(run_id, record))
        except RecordError:
            rows.append(RunRow(run_id, "no record"))
        except CostlensError:
            rows.append(RunRow(run_id, "unreadable"))
    return sorted(rows, key=lambda row: (row.started or 0.0, row.id), reverse=True)


def _row(run_id: str, record: RunRecord) -> RunRow:
    return RunRow(
        id=run_id,
        state=record.attempts[-1].outcome.value,
        started=record.attempts[0].start_time,
        wall_s=sum(attempt.wall_s for attempt in record.attempts),
        optimizer_steps=record.progress.optimizer_steps,
        tokens=record.progress.tokens,
        cost=record.cost.total,
        currency=record.cost.currency,
        is_partial=record.cost.is_partial,
    )


def _table(rows: list[RunRow]) -> Table:
    from rich.table import Table
    from rich.text import Text

    from costlens.export.console import OUTCOME_STYLES
    from costlens.export.figures import show_count, show_duration, show_text, show_time

    styles = {outcome.value: style for outcome, style in OUTCOME_STYLES.items()}
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("run", overflow="fold")
    table.add_column("state", no_wrap=True)
    table.add_column("started (UTC)", no_wrap=True)
    for title in ("wall", "steps", "tokens", "cost"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            Text(show_text(row.id)),
            Text(row.state, styles.get(row.state, "yellow")),
            UNKNOWN if row.started is None else show_time(row.started),
            UNKNOWN if row.wall_s is None else show_duration(row.wall_s),
            UNKNOWN if row.optimizer_steps is None else show_count(row.optimizer_steps),
            UNKNOWN if row.tokens is None else show_count(row.tokens),
            _cost(row),
        )
    return table


def _cost(row: RunRow) -> str:
    from costlens.export.figures import show_money, show_text

    if row.cost is None:
        return UNKNOWN
    return show_text(show_money(row.cost, row.currency)) + (" in part" if row.is_partial else "")
