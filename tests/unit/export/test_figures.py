"""Numbers as people read them."""

from __future__ import annotations

import pytest

from costlens.export.figures import (
    show_bar,
    show_bytes,
    show_count,
    show_duration,
    show_money,
    show_rate,
    show_share,
    show_text,
    show_time,
    show_value,
)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.0, "0 s"),
        (4.2e-5, "42.0 µs"),
        (0.0746, "74.6 ms"),
        (0.9999, "1.00 s"),
        (32.44, "32.4 s"),
        (99.96, "1m 40s"),
        (724.0, "12m 04s"),
        (3599.9, "1h 00m"),
        (11_520.0, "3h 12m"),
        (450_000.0, "5d 05h"),
    ],
)
def test_durations_choose_their_unit(seconds: float, shown: str) -> None:
    """Three digits of the unit that fits, whatever the size."""
    assert show_duration(seconds) == shown


def test_counts_and_rates_are_readable() -> None:
    """Thousands apart, then millions and billions; rates with three digits."""
    shown = [show_count(n) for n in (0, 391_117, 25_900_000, 106_000_000_000)]
    assert shown == ["0", "391,117", "25.9 million", "106 billion"]
    assert [show_rate(rate) for rate in (0.0123, 7.36, 117.8, 14_393.2)] == [
        "0.0123",
        "7.36",
        "118",
        "14,393",
    ]


def test_tiny_is_not_nothing() -> None:
    """A share or an amount that rounds to zero is still told apart from zero."""
    assert [show_share(share) for share in (0.0, 0.0001, 0.484)] == ["0.0 %", "<0.1 %", "48.4 %"]
    assert show_money("0.000001", decimals=4) == "<0.0001"
    assert show_money("0.00", decimals=4) == "0.0000"


def test_money_shows_cents_or_three_digits() -> None:
    """Amounts are rounded for reading only: cents, and more where cents say nothing."""
    amounts = ("4532.824512", "0.0111", "0.000000283", "0.00")
    assert [show_money(amount) for amount in amounts] == [
        "4,532.82",
        "0.0111",
        "0.000000283",
        "0.00",
    ]
    assert show_money("5.00", "EUR") == "5.00 EUR"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("größe 実験", "größe 実験"),
        ("a\x1b[31mb\nc", r"a\x1b[31mb\nc"),
        ("\x9b2J\x7f", r"\x9b2J\x7f"),
        ("\u202egpj.exe\u2066\u200b", r"\u202egpj.exe\u2066\u200b"),
        ("\ud800", r"\ud800"),
    ],
)
def test_text_from_outside_commands_no_terminal(text: str, shown: str) -> None:
    """Escapes, line breaks and marks that turn or hide text are shown, not obeyed."""
    assert show_text(text) == shown


def test_values_times_and_bars() -> None:
    """Unknown is a dash; times are in UTC; bars end within an eighth of a character."""
    assert (show_value(None), show_value(2.31194)) == ("–", "2.312")
    assert show_time(1_760_000_000.0) == "2025-10-09 08:53"
    assert [show_bar(share, 4) for share in (0.0, 0.5, 0.53, 1.0, 7.0)] == [
        "",
        "██",
        "██▏",
        "████",
        "████",
    ]


def test_bytes_are_shown_in_the_unit_that_fits() -> None:
    """Three digits, and the next unit where they would become four."""
    counts = (0, 999, 1000, 12_345, 999_600, 4.2e9, 7e15)
    shown = [show_bytes(count) for count in counts]
    assert shown == ["0 B", "999 B", "1.00 kB", "12.3 kB", "1.00 MB", "4.20 GB", "7,000 TB"]
