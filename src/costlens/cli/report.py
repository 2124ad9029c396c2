"""``costlens report``: the merged record of one run, as a page or as JSON."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from costlens.cli.options import Directory, JsonFlag, load_config, make_console, print_json
from costlens.cli.progress import progress
from costlens.errors import ConfigError

if TYPE_CHECKING:
    from costlens.core.run_record import RunRecord

__all__ = ["report"]


def report(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="A run's id, the beginning of one, a part of one such as its name, latest, or the "
            "path or URL of its folder.",
            show_default=False,
        ),
    ] = "latest",
    directory: Directory = None,
    as_json: JsonFlag = False,
    is_watching: Annotated[
        bool,
        typer.Option(
            "--watch",
            help="Show it again and again until the run has ended; with --json, a line each time.",
        ),
    ] = False,
    html: Annotated[
        str | None,
        typer.Option(
            "--html",
            metavar="FILE|URL|-",
            help="Write it as one HTML file with charts, which opens from disk. "
            r"Needs costlens\[html].",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Show where the time and the money of a run went, also while it runs."""
    from costlens.export.record import read_run
    from costlens.observe.last_words import witness_end
    from costlens.storage.runs import open_run

    if html is not None and (as_json or is_watching):
        raise ConfigError("--html goes neither with --json nor with --watch; ask for one of them")
    folder = open_run(run, load_config(dir=directory).run_dir)

    def read() -> RunRecord:
        return read_run(folder, time.time(), witness_end)

    if html is not None:
        from costlens.cli.report_page import write_page

        write_page(folder, html)
    elif is_watching:
        _watch(read, as_json=as_json)
    else:
        with progress("reading the run"):
            record = read()
        _show(record, as_json=as_json)


def _show(record: RunRecord, *, as_json: bool) -> None:
    if as_json:
        print_json(record.model_dump_json(indent=2))
        return
    from costlens.export.console import render

    render(record, make_console())


def _watch(read: Callable[[], RunRecord], *, as_json: bool) -> None:
    from costlens.cli.watch import follow, show_live

    if as_json:
        follow(read, lambda record: print_json(record.model_dump_json()))
    else:
        show_live(read, make_console())
