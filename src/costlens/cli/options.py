"""What several commands share: their options, the settings they imply, and where output goes."""

from __future__ import annotations

import json
import re
import sys
import warnings
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated, Any

import typer

from costlens.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from costlens.config import Config

__all__ = [
    "Directory",
    "JsonFlag",
    "Since",
    "check_place",
    "load_config",
    "make_console",
    "parse_since",
    "print_json",
]

Directory = Annotated[
    str | None,
    typer.Option(
        "--dir",
        metavar="DIR",
        help="Where the run folders are: a path or a URL. Default: COSTLENS_DIR, else "
        "<COSTLENS_CHECKPOINT_URL>/.costlens, else costlens-runs.",
    ),
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="AGE|DATE",
        help="Only runs that were alive since then, such as 12h, 7d, 4w or 2026-01-31 (UTC).",
    ),
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]

_AGE = re.compile(r"([0-9]{1,6})([hdw])")
_AGE_S = {"h": 3600, "d": 86_400, "w": 604_800}
_RARE = re.compile(r"[^\x20-\x7e\n]")

PIPE_WIDTH = 160
"""Columns of a table that no terminal limits."""


def load_config(**arguments: Any) -> Config:
    """Return the settings with arguments over the environment; warnings become lines on stderr.

    Raises:
        ConfigError: If a setting is not usable.
    """
    from costlens.config import resolve_config
    from costlens.export.figures import show_text

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        config = resolve_config(**arguments)
    for warning in caught:
        typer.echo(f"costlens: {show_text(str(warning.message))}", err=True)
    variable = "COSTLENS_DIR" if config.dir else "COSTLENS_CHECKPOINT_URL"
    check_place(config.run_dir, variable if arguments.get("dir") is None else "--dir")
    return config


def check_place(url: str, source: str) -> None:
    """Do nothing where a text can be the place of a store.

    Args:
        url: The text.
        source: Where it is from, for the error.

    Raises:
        ConfigError: If it is neither a path nor a URL.
    """
    from costlens.storage.location import parse_location

    try:
        parse_location(url)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None


def parse_since(text: str | None, now: float) -> float | None:
    """Return the Unix time that an age or a date means; None where none was given.

    Args:
        text: Such as ``12h``, ``7d``, ``4w``, ``2026-01-31`` or ``2026-01-31T12:00`` (UTC).
        now: Unix time that an age counts back from.

    Raises:
        ConfigError: If it is neither.
    """
    if text is None:
        return None
    age = _AGE.fullmatch(text)
    if age is not None:
        return now - int(age[1]) * _AGE_S[age[2]]
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"--since cannot be {text!r}; give an age such as 12h, 7d or 4w, or a date such as "
            "2026-01-31 (UTC)"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()


def make_console(*, is_table: bool = False) -> Console:
    """Return the console on standard output.

    Args:
        is_table: Whether lines matter more than 80 columns where it is no terminal.
    """
    from rich.console import Console

    console = Console()
    return Console(width=PIPE_WIDTH) if is_table and not console.is_terminal else console


def print_json(text: str) -> None:
    """Print a JSON text, and nothing else, on standard output, at once.

    What the output cannot hold, or a terminal would obey, is written as JSON escapes.
    """
    encoding = sys.stdout.encoding or "ascii"
    sys.stdout.write(_RARE.sub(lambda found: _escape(found[0], encoding), text) + "\n")
    sys.stdout.flush()


def _escape(character: str, encoding: str) -> str:
    escaped = json.dumps(character)[1:-1] if character != "\x7f" else "\\u007f"
    try:
        character.encode(encoding)
    except UnicodeEncodeError:
        return escaped
    return character if character.isprintable() else escaped
