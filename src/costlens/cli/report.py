"""``costlens report``: the merged record of one run, as a page or as JSON."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from costlens.cli.options import Directory, JsonFlag, load_config, make_console, print_json

__all__ = ["report"]


def report(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="A run's id, the beginning of one, a part of one such as its name, or latest.",
            show_default=False,
        ),
    ] = "latest",
    directory: Directory = None,
    as_json: JsonFlag = False,
) -> None:
    """Show where the time and the money of a run went, also while it runs."""
    from costlens.export.console import render
    from costlens.export.record import read_run
    from costlens.storage.run_folder import RunFolder
    from costlens.storage.runs import find_run
    from costlens.storage.store import Store

    store = Store(load_config(dir=directory).run_dir)
    now = time.time()
    record = read_run(RunFolder(store, find_run(store, run)), now)
    if as_json:
        print_json(record.model_dump_json(indent=2))
    else:
        render(record, make_console(), now=now)
