"""What is said of settings that cannot be used: the name, the value, what is allowed, its source.

Pure; ``config.py`` raises and warns with it. No credential of a URL is repeated.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic.fields import FieldInfo

__all__ = ["explain", "nearest"]

# Everything before the last @ of a URL, and its query: where credentials stand.
_CREDENTIALS = re.compile(r"(?<=://)\S*@|(?<=\?)\S*")
_MAX_SHOWN = 80
_MAX_SHOWN_NUMBER = 20


def explain(
    error: ValidationError,
    fields: Mapping[str, FieldInfo],
    given: Mapping[str, object],
    environ: Mapping[str, str],
    *,
    prefix: str,
    numbers: Collection[str],
) -> str:
    """Return a line for each problem.

    Args:
        error: What pydantic found.
        fields: The settings by name.
        given: Those that came as arguments; the others came from variables.
        environ: The environment.
        prefix: How the variables of settings begin.
        numbers: Names of settings whose values are shown to 20 characters only.
    """
    lines = []
    for problem in error.errors(include_url=False, include_input=False):
        name = str(problem["loc"][0]) if problem["loc"] else "config"
        if name not in fields:
            lines.append(f"{name} is not a costlens setting; did you mean {nearest(name, fields)}?")
            continue
        variable = prefix + name.upper()
        if name in given:
            source, value = f"argument {name}", given[name]
        else:
            source = variable
            value = next((v for k, v in environ.items() if k.upper() == variable), None)
        shown = _show(value, _MAX_SHOWN_NUMBER if name in numbers else _MAX_SHOWN)
        message = problem["msg"].removeprefix("Value error, ")
        lines.append(
            f"{name} cannot be {shown} (from {source}): {message}. "
            f"{name}: {fields[name].description}"
        )
    return "\n".join(lines)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name that is spelt most like ``name``."""
    return difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.0)[0]


def _show(value: object, limit: int) -> str:
    text = _CREDENTIALS.sub("…", repr(value))
    return text if len(text) <= limit else text[:limit] + "…"
