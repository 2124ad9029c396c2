"""Durations as people write them: a number and its unit."""

from __future__ import annotations

import re

__all__ = ["parse_duration_s"]

_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION = re.compile(r"\s*([0-9]{1,9}(?:\.[0-9]{1,6})?)\s*([smhd])\s*", re.ASCII)


def parse_duration_s(text: str) -> float:
    """Return the seconds of a duration such as ``90s``, ``10m``, ``2.5h`` or ``1d``.

    Raises:
        ValueError: If it is none; says what is allowed.
    """
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError("a number and its unit are needed, such as 90s, 10m, 2h or 1d")
    return float(found[1]) * _UNITS_S[found[2]]
