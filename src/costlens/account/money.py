"""Exact money: one decimal context, the digits that an amount keeps, and how it is written.

What everything in this room that adds, divides or prints money shares.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Context, Decimal, localcontext

__all__ = ["EXACT", "GRAIN", "NS_PER_HOUR", "add", "format_money", "format_ratio", "last_digit"]

NS_PER_HOUR = 3_600_000_000_000

# The host application may have changed the process's decimal context.
EXACT = Context(prec=60)
"""Exact for every sum and product that the bounds of prices and times allow."""

GRAIN = Decimal("1e-9")
"""The last digit of an amount that is not tiny."""

_RATIO_GRAIN = Decimal("1e-12")
_MIN_DIGITS = 3


def add(amounts: Iterable[Decimal]) -> Decimal:
    """Return the exact sum."""
    with localcontext(EXACT):
        return sum(amounts, Decimal(0))


def last_digit(amount: Decimal, usual: Decimal = GRAIN) -> Decimal:
    """Return the last digit that an amount keeps: what is tiny is not nothing."""
    if amount == 0:
        return usual
    return min(usual, Decimal(1).scaleb(amount.adjusted() + 1 - _MIN_DIGITS))


def format_money(amount: Decimal) -> str:
    """Return a plain decimal string with at least two decimals: ``5.00``, never ``1E-7``."""
    whole, _, decimals = f"{amount:f}".partition(".")
    return f"{whole}.{decimals.rstrip('0').ljust(2, '0')}"


def format_ratio(amount: Decimal) -> str:
    """Return a ratio of money as a plain decimal string, cut to 1e-12 or to three digits."""
    with localcontext(EXACT):
        return format_money(amount.quantize(last_digit(amount, _RATIO_GRAIN)))
