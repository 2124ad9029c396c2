"""The kinds of values that settings have, and how a text of the environment becomes one.

``config.py`` has the settings; the bounds here keep every sum and every clock exact.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone
from decimal import Decimal
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from costlens.duration import parse_duration_s

__all__ = [
    "Budget",
    "CapacityType",
    "Flops",
    "HourPrice",
    "JobTime",
    "Label",
    "PreemptionSignal",
    "Ratio",
    "drop_sign",
    "parse_decimal",
    "parse_duration",
    "parse_signals",
    "parse_switch",
    "split_names",
]

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})

# Not what Decimal takes: it knows 1_000, NaN and the digits of every script.
_DECIMAL = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?\s*", re.ASCII)

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_END = datetime(9999, 1, 1, tzinfo=timezone.utc)

HourPrice = Annotated[
    Decimal, Field(ge=0, lt=1_000_000_000, decimal_places=12, allow_inf_nan=False)
]
"""Money per hour; the bounds keep every sum exact."""

Ratio = Annotated[Decimal, Field(ge=0, le=1, decimal_places=12, allow_inf_nan=False)]
"""A share of 0 to 1 that money is multiplied with."""

Flops = Annotated[float, Field(gt=0, lt=1e30, allow_inf_nan=False)]

CapacityType = Literal["on_demand", "spot", "reserved"]
"""How capacity was bought: prices differ by it."""

JobTime = Annotated[AwareDatetime, Field(ge=_EPOCH, lt=_END)] | None
"""A moment that a scheduler's template passes."""

Label = Annotated[str, Field(min_length=1, max_length=200)] | None

Budget = Annotated[
    Decimal, Field(gt=0, lt=1_000_000_000_000, decimal_places=12, allow_inf_nan=False)
]
"""Money for a whole run."""

PreemptionSignal = Literal["SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGXCPU"]


def parse_switch(value: object) -> object:
    """Return what a text says of a switch; anything else as it is.

    Raises:
        ValueError: If the text is neither on nor off; says what is allowed.
    """
    if not isinstance(value, str):
        return value
    lowered = value.strip().lower()
    if lowered in _TRUE:
        return True
    if lowered in _FALSE:
        return False
    raise ValueError("allowed are 1, true, yes, on and 0, false, no, off")


def parse_decimal(value: object) -> object:
    """Return the value as it is, unless it is a text of no plain decimal number.

    Raises:
        ValueError: If it is such a text.
    """
    if isinstance(value, str) and not _DECIMAL.fullmatch(value):
        raise ValueError("a plain decimal number such as 2.50 is needed")
    return value


def drop_sign(value: Decimal | None) -> Decimal | None:
    """Return the number without the sign that a zero may have."""
    return None if value is None else value.copy_abs()


def parse_duration(value: object) -> object:
    """Return the seconds of a text such as ``30m``; anything else as it is.

    Raises:
        ValueError: If the text is no duration; says what is allowed.
    """
    return parse_duration_s(value) if isinstance(value, str) else value


def split_names(value: object) -> object:
    """Return the parts of a text between its commas; anything else as it is."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def parse_signals(value: object) -> object:
    """Return the names of signals in a text, which may go without their ``SIG``."""
    if not isinstance(value, str):
        return value
    names = [name.strip().upper() for name in value.split(",")]
    names = [name for name in names if name not in {"", "NONE"}]
    return tuple(name if name.startswith("SIG") else f"SIG{name}" for name in names)
