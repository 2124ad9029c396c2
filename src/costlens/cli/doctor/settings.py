"""Can the settings be used, and does every COSTLENS_* variable mean something?"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from costlens.cli.doctor.answer import Answer, ok, problem, warning
from costlens.cli.doctor.running import Outcome
from costlens.config import Config
from costlens.errors import ConfigError

__all__ = ["Settings", "look_at_settings"]

_NAME = "settings"


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings, as far as they can be used.

    Args:
        outcome: What there is to say of them.
        config: The settings; None where they cannot be used.
        rows: Each with its value and where it came from.
    """

    outcome: Outcome
    config: Config | None
    rows: Sequence[dict[str, Any]] = ()


def look_at_settings(directory: str | None) -> Settings:
    """Return the settings of a run that would start here.

    Args:
        directory: What the command line says of the run folder.
    """
    from costlens.cli.config import list_settings
    from costlens.config import resolve_config

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            config = resolve_config(dir=directory)
            rows = list_settings(config, {"dir"} if directory is not None else set())
        except ConfigError as error:
            return Settings(Outcome(_NAME, tuple(map(_unusable, str(error).splitlines()))), None)
    answers = [_tell_unknown(str(each.message)) for each in caught]
    return Settings(Outcome(_NAME, (_tell(rows), *answers)), config, rows)


def _unusable(line: str) -> Answer:
    return problem(line, "mend it, or unset it; costlens config shows what applies")


def _tell_unknown(message: str) -> Answer:
    what, _, fix = message.partition("; ")
    return warning(what, fix or None)


def _tell(rows: Sequence[dict[str, Any]]) -> Answer:
    given = [row for row in rows if row["origin"] != "default"]
    shown = ", ".join(f"{row['setting']} = {row['value']} ({row['source']})" for row in given)
    return ok(shown or "all are at their defaults")
