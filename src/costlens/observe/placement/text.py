"""Reads what launchers and schedulers write into variables and files: bounded, never raising."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from costlens.core.job_records import MAX_TEXT

__all__ = ["cut", "read_downward", "read_pairs", "read_small", "read_time"]

_MAX_FILE_BYTES = 64 * 1024
_MAX_TIME_S = 253_402_300_800  # the year 9999
_LINE = re.compile(r'(?P<key>[^=\s]+)="(?P<value>(?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")


def cut(text: str | None) -> str | None:
    """Return a name without surrounding space and of bounded length; None where there is none."""
    return (text or "").strip()[:MAX_TEXT] or None


def read_time(text: str | None) -> float | None:
    """Return Unix seconds from digits; None for anything else, and for 0, which means unknown."""
    digits = (text or "").strip()
    if not digits.isdecimal() or not 0 < int(digits) < _MAX_TIME_S:
        return None
    return float(digits)


def read_pairs(text: str) -> dict[str, str]:
    """Return ``key=value`` pairs between commas, as ``OTEL_RESOURCE_ATTRIBUTES`` has them."""
    pairs = (pair.partition("=") for pair in text[:_MAX_FILE_BYTES].split(","))
    return {key.strip(): value.strip() for key, _, value in pairs if key.strip() and value.strip()}


def read_small(path: Path) -> str | None:
    """Return the text of a small file; None where it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(_MAX_FILE_BYTES).decode("utf-8", "replace").strip() or None
    except OSError:
        return None


def read_downward(path: Path) -> Mapping[str, str]:
    """Return labels or annotations from a file of Kubernetes' downward API, ``key="value"`` each.

    Quoted as Go does it; escapes beyond a quoted character are kept as they are.
    """
    lines = (read_small(path) or "").splitlines()
    matches = (_LINE.fullmatch(line.strip()) for line in lines)
    return {match["key"]: _ESCAPE.sub(r"\1", match["value"]) for match in matches if match}
