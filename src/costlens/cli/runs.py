"""``costlens runs``: the runs of a folder in a table, the newest first, or added up in groups."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from costlens.cli.options import (
    Directory,
    JsonFlag,
    Since,
    load_config,
    make_console,
    parse_since,
    print_json,
)
from costlens.cli.progress import track
from costlens.errors import ConfigError, CostlensError, RecordError

if TYPE_CHECKING:
    from rich.text import Text

    from costlens.core.run_record import RunRecord
    from costlens.storage.store import Store

__all__ = ["runs"]

UNKNOWN = "–"
_ID = "run"
_GAP = 2
_RIGHT = frozenset({"wall", "steps", "tokens", "cost"})
# On a narrow terminal, in this order.
_LEFT_OUT = ("tokens", "steps", "started (UTC)", "wall", "cost")

T = TypeVar("T")


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


def runs(
    directory: Directory = None,
    since: Since = None,
    group_by: Annotated[
        str | None,
        typer.Option(
            metavar="LABEL",
            help="Add runs up by a label, such as project, team, experiment, experiment_version, "
            "model, dataset_version, or by outcome; each run counts whole.",
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """List the runs, or what groups of them spent and wasted."""
    from costlens.storage.store import Store

    _check_grouping(group_by)
    store = Store(load_config(dir=directory).run_dir)
    found = _read_runs(store, time.time(), since)
    if group_by is not None:
        _show_groups(found, group_by, as_json=as_json)
        return
    rows = sorted(
        (_row(run_id, seen) for run_id, seen in found.items()),
        key=lambda row: (row.started or 0.0, row.id),
        reverse=True,
    )
    if as_json:
        print_json(json.dumps([asdict(row) for row in rows], indent=2))
    elif rows:
        _show_rows(rows)
    else:
        typer.echo(f"no runs in {store.shown_url}" + (f" since {since}" if since else ""))


def _check_grouping(group_by: str | None) -> None:
    from costlens.account.fleet import GROUPINGS

    if group_by is not None and group_by not in GROUPINGS:
        raise ConfigError(
            f"--group-by cannot be {group_by!r}; runs are grouped by {', '.join(GROUPINGS)}"
        )


def _read_runs(store: Store, now: float, since: str | None) -> dict[str, RunRecord | str]:
    """Return the merged record of each run, or what stands in its place in the list."""
    from costlens.export.record import read_run
    from costlens.observe.last_words import witness_end
    from costlens.storage.run_folder import RunFolder
    from costlens.storage.runs import is_alive_since, list_runs

    since_s = parse_since(since, now)
    found: dict[str, RunRecord | str] = {}
    for run_id in track(list_runs(store), "reading runs"):
        folder = RunFolder(store, run_id)
        if since_s is not None and not is_alive_since(folder, since_s):
            continue
        try:
            found[run_id] = read_run(folder, now, witness_end)
        except RecordError:
            found[run_id] = "no record"
        except CostlensError:
            found[run_id] = "unreadable"
    return found


def _show_groups(found: dict[str, RunRecord | str], grouping: str, *, as_json: bool) -> None:
    from costlens.account.fleet import group_runs, sum_runs
    from costlens.cli.fleet_table import make_fleet_table

    readable = [seen for seen in found.values() if not isinstance(seen, str)]
    groups, total = group_runs(readable, grouping), sum_runs(readable, "total")
    num_unread = len(found) - len(readable)
    if as_json:
        document = {
            "group_by": grouping,
            "groups": [group.model_dump(mode="json") for group in groups],
            "total": total.model_dump(mode="json", exclude={"group"}),
            "num_unread": num_unread,
        }
        print_json(json.dumps(document, indent=2))
        return
    table = make_fleet_table(groups, total, grouping)
    make_console(is_table=True).print(table, markup=False, highlight=False)
    if num_unread:
        typer.echo(f"{num_unread} without a readable record are left out", err=True)


def _row(run_id: str, record: RunRecord | str) -> RunRow:
    if isinstance(record, str):
        return RunRow(run_id, record)
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


def _show_rows(rows: list[RunRow]) -> None:
    """Print the table; on a narrow terminal it lacks columns rather than parts of an id."""
    from rich.table import Table

    cells = _cells(rows)
    console = make_console(is_table=True)
    if not console.is_terminal:
        console.width = max(console.width, _width(cells))
    for title in _LEFT_OUT:
        if _width(cells) > console.width:
            del cells[title]
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim")
    for title in cells:
        table.add_column(
            title,
            justify="right" if title in _RIGHT else "left",
            no_wrap=title != _ID,
            overflow="fold" if title == _ID else "ellipsis",
            min_width=min(_column_width(title, cells[title]), console.width)
            if title == _ID
            else None,
        )
    for row in zip(*cells.values(), strict=True):
        table.add_row(*row)
    console.print(table, markup=False, highlight=False)


def _cells(rows: list[RunRow]) -> dict[str, list[Text]]:
    """Return what stands in each column."""
    from rich.text import Text

    from costlens.export.console import OUTCOME_STYLES
    from costlens.export.figures import show_count, show_duration, show_text, show_time

    styles = {outcome.value: style for outcome, style in OUTCOME_STYLES.items()}

    def show(value: T | None, shown: Callable[[T], str]) -> Text:
        return Text(UNKNOWN if value is None else shown(value))

    return {
        _ID: [Text(show_text(row.id)) for row in rows],
        "state": [Text(row.state, styles.get(row.state, "yellow")) for row in rows],
        "started (UTC)": [show(row.started, show_time) for row in rows],
        "wall": [show(row.wall_s, show_duration) for row in rows],
        "steps": [show(row.optimizer_steps, show_count) for row in rows],
        "tokens": [show(row.tokens, show_count) for row in rows],
        "cost": [Text(_cost(row)) for row in rows],
    }


def _width(cells: Mapping[str, list[Text]]) -> int:
    widths = [_column_width(title, column) for title, column in cells.items()]
    return sum(widths) + _GAP * (len(widths) - 1)


def _column_width(title: str, column: list[Text]) -> int:
    return max(len(title), *(cell.cell_len for cell in column))


def _cost(row: RunRow) -> str:
    from costlens.export.figures import show_money, show_text

    if row.cost is None:
        return UNKNOWN
    return show_text(show_money(row.cost, row.currency)) + (" in part" if row.is_partial else "")
