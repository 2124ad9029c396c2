"""``costlens checkpoints``: which are there, whether they are whole, what a resume would choose."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from costlens.cli.options import JsonFlag, load_config, make_console, print_json
from costlens.cli.progress import progress, track
from costlens.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from rich.table import Table

    from costlens.protect.inventory import Entry
    from costlens.protect.shelf import Shelf

__all__ = ["checkpoints"]

checkpoints = typer.Typer(
    help="Show, verify and prune the checkpoints in a place.", no_args_is_help=True
)

Url = Annotated[
    str | None,
    typer.Argument(
        metavar="[URL]",
        help="Where they are, a path or a URL. Default: COSTLENS_CHECKPOINT_URL.",
    ),
]
RunOption = Annotated[
    str | None, typer.Option("--run", metavar="RUN", help="Only this run. Default: each one there.")
]
_STYLES = {"whole": "green", "broken": "red", "rejected": "red", "unreachable": "yellow"}
_MIN_KEPT = 2
_MAX_SHOWN = 40


@checkpoints.command("ls")
def list_checkpoints(url: Url = None, run: RunOption = None, as_json: JsonFlag = False) -> None:
    """List them with what a resume would choose; compares sizes and reads no data."""
    _show(_look(url, run, verify=False), as_json=as_json)


@checkpoints.command("verify")
def verify(url: Url = None, run: RunOption = None, as_json: JsonFlag = False) -> None:
    """Read every byte of them and compare digests; exit code 1 if one is not whole."""
    seen = list(_look(url, run, verify=True))
    _show(iter(seen), as_json=as_json)
    if any(entry.health != "whole" for _, entries in seen for entry in entries):
        raise typer.Exit(1)


@checkpoints.command("prune")
def prune(
    url: Url = None,
    run: RunOption = None,
    keep: Annotated[
        int | None,
        typer.Option(
            min=_MIN_KEPT,
            help="How many whole ones stay of each run. Default: COSTLENS_KEEP_CHECKPOINTS.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would go, and remove nothing.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Remove old checkpoints, broken ones behind the newest whole one, and unfinished saves.

    A save is unfinished if it has no manifest a day after it was begun.
    Those that a fresh start has left behind are counted apart.
    """
    kept = load_config(keep_checkpoints=keep).keep_checkpoints
    removed: dict[str, list[str]] = {}
    for shelf, entries in _look(url, run, verify=False):
        current, left = ([e for e in entries if e.is_left is is_left] for is_left in (False, True))
        old = _too_old(current, kept) + _too_old(left, kept) + _left_over(shelf)
        if not dry_run:
            for name in track(old, "removing"):
                shelf.remove(name)
        removed[shelf.run_id] = [str(name) for name in old]
    if as_json:
        print_json(json.dumps({"is_dry_run": dry_run, "removed": removed}, indent=2))
        return
    for run_id, names in removed.items():
        _print_run(run_id)
        for name in names or ["nothing"]:
            typer.echo(f"{'would remove' if dry_run else 'removed'} {name}")


def _too_old(entries: list[Entry], keep: int) -> list[Any]:
    """Return the names of what retention removes; all of them stay where two are not whole."""
    whole = [entry.name for entry in entries if entry.health == "whole"]
    if keep < 0 or len(whole) < _MIN_KEPT:
        return []
    last_kept = whole[: max(keep, _MIN_KEPT)][-1]
    useless = ("broken", "rejected")
    return [
        entry.name
        for entry in entries
        if entry.name < last_kept or (entry.health in useless and entry.name < whole[0])
    ]


def _left_over(shelf: Shelf) -> list[Any]:
    from costlens.protect.shelf import ORPHAN_AGE_S

    now_s = time.time()
    return [name for name in shelf.unfinished() if now_s - name.wall_s >= ORPHAN_AGE_S]


def _look(url: str | None, run: str | None, *, verify: bool) -> Iterator[tuple[Shelf, list[Entry]]]:
    from costlens.protect.inventory import find_shelves, look_through
    from costlens.protect.shelf import Shelf
    from costlens.storage.store import Store

    place = load_config(checkpoint_url=url).checkpoint_url
    if place is None:
        raise ConfigError("name a place, or set COSTLENS_CHECKPOINT_URL")
    store = Store(place)
    shelves = find_shelves(store) if run is None else [Shelf(store, run)]
    if not shelves or (run is not None and not shelves[0].names()):
        of_run = "" if run is None else f" of run {run!r}"
        raise CheckpointError(f"there are no checkpoints{of_run} in {store.shown_url}")
    for shelf in shelves:
        entries = []
        what = "verifying" if verify else "reading"
        with progress(f"{what} {shelf.run_id[-_MAX_SHOWN:]}", len(shelf.names())) as advance:
            for entry in look_through(shelf, verify=verify):
                entries.append(entry)
                advance()
        yield shelf, entries


def _show(seen: Iterator[tuple[Shelf, list[Entry]]], *, as_json: bool) -> None:
    from costlens.export.figures import show_text
    from costlens.protect.inventory import choose

    documents = []
    for shelf, entries in seen:
        chosen, why = choose(entries)
        unfinished = shelf.unfinished()
        if as_json:
            documents.append(_document(shelf, entries, unfinished))
            continue
        _print_run(shelf.run_id)
        make_console(is_table=True).print(_table(entries), markup=False, highlight=False)
        if unfinished:
            typer.echo(f"unfinished  {len(unfinished)}, without a manifest")
        step = "nothing" if chosen is None else f"step {chosen.name.step}"
        typer.echo(f"a resume would choose {step}: {show_text(why)}")
    if as_json:
        print_json(json.dumps({"runs": documents}, indent=2))


def _print_run(run_id: str) -> None:
    from costlens.export.figures import show_text

    typer.echo(f"run {show_text(run_id)}")


def _document(shelf: Shelf, entries: list[Entry], unfinished: list[Any]) -> dict[str, Any]:
    from costlens.protect.inventory import choose

    chosen, why = choose(entries)
    return {
        "url": shelf.store.shown_url,
        "run_id": shelf.run_id,
        "resume": {
            "name": None if chosen is None else str(chosen.name),
            "step": None if chosen is None else chosen.name.step,
            "reason": why,
        },
        "checkpoints": [_facts(entry) for entry in entries],
        "unfinished": [str(name) for name in unfinished],
    }


def _facts(entry: Entry) -> dict[str, Any]:
    shown = (
        *("kind", "created_time", "num_bytes", "world_size", "inexact", "parent", "precision"),
        "ledger_copy",
    )
    return {
        "name": str(entry.name),
        "step": entry.name.step,
        "attempt": entry.name.attempt,
        "health": entry.health,
        "reason": entry.reason,
        "is_verified": entry.is_verified,
        "is_left_behind": entry.is_left,
        **{key: getattr(entry.manifest, key, None) for key in shown},
    }


def _table(entries: list[Entry]) -> Table:
    from rich.table import Table
    from rich.text import Text

    from costlens.export.figures import show_bytes, show_text, show_time

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title, justify in (("step", "right"), ("attempt", "right"), ("saved (UTC)", "left")):
        table.add_column(title, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("kind", no_wrap=True)
    table.add_column("state", overflow="fold")
    for entry in entries:
        manifest = entry.manifest
        state: str = "verified" if entry.is_verified else entry.health
        if entry.is_left:
            state += ", left behind by a fresh start"
        table.add_row(
            str(entry.name.step),
            str(entry.name.attempt),
            "–" if manifest is None else show_time(manifest.created_time),
            "–" if manifest is None else show_bytes(manifest.num_bytes),
            "–" if manifest is None else manifest.kind,
            Text(
                show_text(f"{state}: {entry.reason}" if entry.reason else state),
                _STYLES[entry.health],
            ),
        )
    return table
