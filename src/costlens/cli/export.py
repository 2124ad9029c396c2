"""``costlens export``: what runs cost, as rows that billing tools read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from costlens.cli.options import Directory, Since, load_config, parse_since
from costlens.cli.progress import track
from costlens.errors import ConfigError, CostlensError, RecordError

if TYPE_CHECKING:
    from costlens.account.focus import Account, Cell
    from costlens.storage.run_folder import RunFolder

__all__ = ["export"]

Rows = Iterator[dict[str, "Cell"]]


def export(  # noqa: PLR0913 - one parameter an option
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN",
            help="A run's id, the beginning of one, a part of one, latest, or the path or URL "
            "of its folder; none is all runs.",
            show_default=False,
        ),
    ] = None,
    *,
    directory: Directory = None,
    since: Since = None,
    format_name: Annotated[
        Literal["focus"],
        typer.Option("--format", help="FOCUS 1.2, the FinOps Open Cost and Usage Specification."),
    ] = "focus",
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where to write, a path or a URL; a name that ends in .parquet means Parquet. "
            "Default: CSV on standard output.",
        ),
    ] = None,
    account: Annotated[
        str, typer.Option(metavar="ID", help="What stands as the billing account.")
    ] = "costlens",
    provider: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Whose machines they are, as the provider. Default: the cloud a record names, "
            "else unknown.",
        ),
    ] = None,
) -> None:
    """Write a row for every attempt, rank and hour that was paid for; rows add up to the ledger."""
    from costlens.account.focus import Account
    from costlens.cli.export_files import write_csv, write_parquet

    if format_name != "focus":
        raise ConfigError(f"--format cannot be {format_name!r}; focus is allowed")
    now = time.time()
    since_s = parse_since(since, now)
    folders = _choose(load_config(dir=directory).run_dir, run)
    rows = _read_rows(folders, Account(account, provider), now, since_s, is_named=run is not None)
    first = [*islice(rows, 1)]  # what cannot be read shows before a file is replaced
    rows = chain(first, rows)
    if output is not None and output.endswith(".parquet"):
        write_parquet(rows, output)
    else:
        write_csv(rows, output)


def _choose(run_dir: str, run: str | None) -> list[RunFolder]:
    from costlens.storage.run_folder import RunFolder
    from costlens.storage.runs import list_runs, open_run
    from costlens.storage.store import Store

    if run is not None:
        return [open_run(run, run_dir)]
    store = Store(run_dir)
    return [RunFolder(store, run_id) for run_id in list_runs(store)]


def _read_rows(
    folders: list[RunFolder], account: Account, now: float, since_s: float | None, *, is_named: bool
) -> Rows:
    from costlens.account.cost import charge_rank
    from costlens.account.focus import make_rows
    from costlens.export.figures import show_text
    from costlens.export.record import explain_none, read_ranks
    from costlens.observe.last_words import witness_end
    from costlens.storage.runs import is_alive_since

    for folder in track(folders, "reading runs"):
        if since_s is not None and not is_alive_since(folder, since_s):
            continue
        try:
            records, problems = read_ranks(folder, now, witness_end)
        except CostlensError as error:
            records, problems = [], [str(error)]
        if is_named and not records:
            raise RecordError(explain_none(folder.run_id, problems))
        charges = [charge_rank(record) for record in records]
        num_unpriced = charges.count(None)
        if num_unpriced:
            problems.append(f"{num_unpriced} of {len(records)} rank records have no price")
        for problem in problems:
            typer.echo(show_text(f"costlens: {folder.run_id}: {problem}; left out"), err=True)
        yield from make_rows((c for c in charges if c is not None), account, since_s)
