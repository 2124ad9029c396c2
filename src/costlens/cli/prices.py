"""``costlens prices``: which price a rank would be charged at here, and why that one."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated, Any

import typer

from costlens.cli.options import JsonFlag, load_config, make_console, print_json
from costlens.cli.progress import progress

if TYPE_CHECKING:
    from costlens.account.price_choice import Choice
    from costlens.config import Config
    from costlens.core.price_records import PricePart
    from costlens.core.records import RankPart

__all__ = ["find_price", "prices"]

_MAX_SHOWN = 20
_COLUMNS = (
    *("amount", "currency", "unit", "accelerator", "instance_type", "provider", "region"),
    *("capacity_type", "since", "source"),
)


def prices(  # noqa: PLR0913, PLR0917 - one parameter an option, as Typer reads them
    accelerator: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Product name of the GPU, such as H100. Default: a rank without."
        ),
    ] = None,
    book: Annotated[
        str | None,
        typer.Option(metavar="URL", help="A price book, or bundled. Default: COSTLENS_PRICE_BOOK."),
    ] = None,
    provider: Annotated[str | None, typer.Option(help="Whose prices apply.")] = None,
    region: Annotated[str | None, typer.Option(help="Region or zone whose prices apply.")] = None,
    instance_type: Annotated[str | None, typer.Option(help="Machine type.")] = None,
    spot: Annotated[bool, typer.Option("--spot", help="Ask for spot capacity.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show the price that would be used, the rule that chose it, its source and date."""
    from costlens.core.records import RankPart

    config = load_config(
        price_book=book,
        cloud_provider=provider,
        region=region,
        instance_type=instance_type,
        capacity_type="spot" if spot else None,
    )
    rank = RankPart(
        rank=0, host_name="here", pid=1, num_gpus=int(bool(accelerator)), accelerator=accelerator
    )
    with progress("reading the price book"):
        answer = find_price(config, rank)
    if as_json:
        print_json(json.dumps(answer, indent=2))
    else:
        _show(answer)


def find_price(config: Config, rank: RankPart) -> dict[str, Any]:
    """Return the price of a rank, the rule that chose it, and what else a price book has.

    Args:
        config: The settings.
        rank: What it drives.

    Raises:
        ConfigError: If the price book is none.
        StorageError: If it cannot be read.
    """
    from costlens.account.price_book import shown_entries
    from costlens.account.price_choice import choose_price
    from costlens.account.prices import ask_price, resolve_energy_price, resolve_price
    from costlens.observe.placement import detect_placement
    from costlens.observe.pricing import read_price_book

    listed = None
    if config.price_book is not None:
        day = datetime.now(timezone.utc).date()
        query = ask_price(config, rank, day, detect_placement().job)
        listed = choose_price(read_price_book(config.price_book), query)
    price = resolve_price(config, rank, config.source_of, listed)
    energy = resolve_energy_price(config, config.source_of)
    known = not isinstance(price, str)
    return {
        "price": price.model_dump(exclude_none=True) if not isinstance(price, str) else None,
        "rule": _rule(price, listed) if not isinstance(price, str) else None,
        "unknown": None if known else price,
        "energy_price": None if energy is None else energy.model_dump(),
        "candidates": shown_entries(listed.candidates[:_MAX_SHOWN]) if listed else [],
        "num_candidates": len(listed.candidates) if listed else 0,
    }


def _rule(price: PricePart, listed: Choice | None) -> str:
    if price.entry is None or listed is None:
        return f"{price.source} goes before any price book"
    return listed.rule


def _show(answer: dict[str, Any]) -> None:
    from rich.text import Text

    from costlens.export.console_layout import Row, lay_out
    from costlens.export.figures import show_text

    price, energy = answer["price"], answer["energy_price"]
    rows: list[Row] = []
    if price is None:
        rows.append(("unknown", Text(show_text(answer["unknown"]), "yellow")))
    else:
        rows.append(
            ("price", f"{price['amount']} {price['currency']} per {price['unit']} and hour")
        )
        rows.append(("because", show_text(answer["rule"])))
        rows += [
            (label, show_text(price[key]))
            for label, key in (
                *(("from", "source"), ("entry", "entry"), ("since", "since")),
                *(("found at", "entry_source"), ("less", "discount")),
            )
            if price.get(key)
        ]
    if energy is not None:
        text = f"{energy['amount_per_kwh']} {energy['currency']} per kWh, a cost of its own"
        rows.append(("electricity", text))
    console = make_console(is_table=True)
    console.print(lay_out(rows), markup=False, highlight=False)
    if answer["candidates"]:
        console.print(_table(answer), markup=False, highlight=False)


def _table(answer: dict[str, Any]) -> Any:  # noqa: ANN401 - rich is loaded when it prints
    from rich.table import Table

    from costlens.export.figures import show_text

    num, num_shown = answer["num_candidates"], len(answer["candidates"])
    table = Table(
        title=f"the first {num_shown} of {num} entries that fit" if num > num_shown else None,
        title_justify="left",
        box=None,
        pad_edge=False,
        padding=(1, 2, 0, 0),
        header_style="dim",
    )
    for column in _COLUMNS:
        table.add_column(column.replace("_", " "), overflow="fold")
    for entry in answer["candidates"]:
        table.add_row(*(show_text(str(entry[column] or "–")) for column in _COLUMNS))
    return table
