"""Numbers as people read them: what the console report and the command line's tables share."""

from __future__ import annotations

import time
from decimal import Decimal

__all__ = [
    "money_decimals",
    "show_bar",
    "show_bytes",
    "show_count",
    "show_duration",
    "show_money",
    "show_rate",
    "show_share",
    "show_text",
    "show_time",
    "show_value",
]

_EIGHTHS = " ▏▎▍▌▋▊▉"


def show_duration(seconds: float) -> str:
    """Return seconds in the unit that fits: ``75.0 ms``, ``32.4 s``, ``12m 04s``, ``3h 12m``."""
    if seconds <= 0:
        return "0 s"
    if seconds < 0.9995e-3:
        return f"{_significant(seconds * 1e6)} µs"
    if seconds < 0.9995:
        return f"{_significant(seconds * 1e3)} ms"
    if seconds < 99.95:
        return f"{_significant(seconds)} s"
    return _show_long(round(seconds))


def _show_long(seconds: int) -> str:
    minutes, hours = seconds // 60, seconds // 3600
    if hours == 0:
        return f"{minutes}m {seconds % 60:02d}s"
    if hours < 48:
        return f"{hours}h {minutes % 60:02d}m"
    return f"{hours // 24}d {hours % 24:02d}h"


def show_count(count: int) -> str:
    """Return a count with its thousands apart, in millions and billions where that is longer."""
    for size, unit in ((10**10, "billion"), (10**7, "million")):
        if count >= size:
            return f"{_significant(count / (size // 10))} {unit}"
    return f"{count:,}"


def show_bytes(count: float) -> str:
    """Return bytes in the unit that fits, each a thousand of the one before: ``1.25 GB``."""
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= 0.9995 * size:
            return f"{_significant(count / size)} {unit}"
    return f"{count:.0f} B"


def show_rate(rate: float) -> str:
    """Return a rate with three significant digits and its thousands apart."""
    return _significant(rate)


def show_share(share: float) -> str:
    """Return a share of 0 to 1 in percent; what is there but tiny never looks like nothing."""
    if 0 < share < 0.0005:
        return "<0.1 %"
    return f"{100 * share:.1f} %"


def money_decimals(amount: str) -> int:
    """Return the decimals that show three digits of an amount, at least the two of cents."""
    exact = Decimal(amount)
    return 2 if exact == 0 else max(2, 2 - exact.adjusted())


def show_money(amount: str, currency: str | None = None, decimals: int | None = None) -> str:
    """Return an exact amount rounded for reading; what is there but tiny never looks like nothing.

    Args:
        amount: A decimal string.
        currency: Appended when given.
        decimals: As many as the amounts it stands among; by default those of ``money_decimals``.
    """
    exact = Decimal(amount)
    places = money_decimals(amount) if decimals is None else decimals
    least = Decimal(1).scaleb(-places)
    shown = f"<{least}" if 0 < exact < least / 2 else f"{exact:,.{places}f}"
    return f"{shown} {currency}" if currency else shown


def show_value(value: float | None) -> str:
    """Return a measured value with four significant digits, or ``–`` when it is unknown."""
    return "–" if value is None else f"{value:.4g}"


def show_text(text: str) -> str:
    r"""Return a text from outside as it can be printed.

    Escapes, line breaks and marks that turn or hide text become visible, such as ``\x1b``.
    """
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def show_time(unix_s: float) -> str:
    """Return a Unix time in UTC, to the minute; the caller says that it is UTC."""
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(unix_s))


def show_bar(share: float, width: int) -> str:
    """Return a bar of ``share`` (0 to 1) of ``width`` characters, to an eighth of a character."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def _significant(value: float) -> str:
    if value == 0 or value >= 99.95:
        return f"{value:,.0f}"
    exponent = int(f"{value:.2e}".partition("e")[2])
    return f"{value:.{max(0, 2 - exponent)}f}"
