"""``costlens config``: every setting as it would apply here, and where it came from."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from costlens.cli.options import Directory, JsonFlag, load_config, make_console, print_json

if TYPE_CHECKING:
    from costlens.config import Config

__all__ = ["config", "list_settings"]


def config(directory: Directory = None, as_json: JsonFlag = False) -> None:
    """Show the effective settings and whether an argument, a variable or the default set them."""
    rows = list_settings(load_config(dir=directory), {"dir"} if directory is not None else set())
    if as_json:
        print_json(json.dumps(rows, indent=2))
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("setting", no_wrap=True)
    table.add_column("value", overflow="fold")
    table.add_column("from", no_wrap=True)
    for row in rows:
        is_set = row["origin"] != "default"
        value = "–" if row["value"] is None else str(row["value"])
        table.add_row(row["setting"], Text(value, "bold" if is_set else ""), row["source"])
    make_console(is_table=True).print(table, markup=False, highlight=False)


def list_settings(settings: Config, arguments: set[str]) -> list[dict[str, Any]]:
    """Return each setting with its value, as it may be shown, and where it came from.

    Args:
        settings: The settings.
        arguments: Names of those that the command line gave.
    """
    from costlens.account.prices import name_variable

    rows = []
    for name in type(settings).model_fields:
        origin = "default"
        if name in settings.model_fields_set:
            origin = "argument" if name in arguments else "variable"
        sources = {"argument": f"argument {name}", "variable": name_variable(name)}
        source = sources.get(origin, origin)
        rows.append(
            {
                "setting": name,
                "value": _shown(settings, name, source),
                "origin": origin,
                "source": source,
            }
        )
    return rows


def _shown(settings: Config, name: str, source: str) -> str | float | bool | None:
    from costlens.cli.options import check_place
    from costlens.storage.location import redact
    from costlens.storage.store import Store

    value = settings.run_dir if name == "dir" else getattr(settings, name)
    if value is None:
        return None
    if name in {"dir", "checkpoint_url"}:
        check_place(value, f"{name} (from {source})")
        return Store(value).shown_url  # without user, password and query
    if name == "price_book":
        return redact(value)
    if isinstance(value, tuple):
        return redact(",".join(value))
    return value if isinstance(value, bool | int | float) else str(value)
