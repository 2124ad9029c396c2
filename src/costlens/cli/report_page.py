"""``costlens report --html``: the report of a run as one HTML file, at a path or a URL."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import typer

from costlens.cli.progress import progress

if TYPE_CHECKING:
    from costlens.storage.run_folder import RunFolder

__all__ = ["write_page"]

_STANDARD_OUTPUT = "-"


def write_page(folder: RunFolder, target: str) -> None:
    """Write the page of a run and say where it is.

    Args:
        folder: The run's folder.
        target: A local file, an fsspec URL, or ``-`` for standard output.

    Raises:
        ConfigError: If the target cannot be understood.
        MissingExtraError: If what draws the charts is not installed.
        StorageError: If the run cannot be read, or the page not be written.
    """
    from costlens.export.page.bundle import load_bundle
    from costlens.storage.files import write_whole
    from costlens.storage.location import parse_location

    place = None if target == _STANDARD_OUTPUT else parse_location(target)
    with progress("loading what draws the charts"):
        bundle = load_bundle()  # what is missing shows before anything is read
    document = _make(folder, bundle).encode()
    if place is None:
        sys.stdout.buffer.write(document)
        sys.stdout.flush()
        return
    write_whole(target, document)
    typer.echo(f"{place.shown}: {len(document) / 1e6:.1f} MB; open it in a browser")


def _make(folder: RunFolder, bundle: str) -> str:
    from costlens import __version__
    from costlens.export.page.page import make_page
    from costlens.export.page.render import render_page
    from costlens.export.page.windows import count_ticks, read_history
    from costlens.export.record import read_ranks, read_run
    from costlens.observe.last_words import witness_end

    now = time.time()
    with progress("reading the run"):
        record = read_run(folder, now, witness_end)
        records, _ = read_ranks(folder, now, witness_end)
    with progress("reading windows", count_ticks(records) or None) as tick:
        history = read_history(folder, records, tick)
    return render_page(make_page(record, history, now, __version__), bundle)
