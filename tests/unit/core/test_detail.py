"""What a control file asks for."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costlens.core.detail import Control, parse_control
from costlens.core.telemetry_records import Detail

MAX_BYTES = 16 * 1024


def parse(**fields: object) -> Control:
    """Return the control of a file that holds these fields."""
    return parse_control(json.dumps(fields).encode(), MAX_BYTES)


def test_what_is_asked_holds_for_its_ranks_until_its_end() -> None:
    """Before `until` by the rank's own clock, and for the ranks that are named; else it is normal.

    What a newer version may ask besides is left alone.
    """
    asked = parse(detail="steps", until=1000.5, ranks=[0, 2], colour="red")
    assert asked.detail_of(2, now=1000.4) is Detail.STEPS
    assert asked.detail_of(1, now=1000.4) is Detail.NORMAL
    assert asked.detail_of(2, now=1000.5) is Detail.NORMAL
    assert parse(detail="off", until=1000.5).detail_of(7, now=0) is Detail.OFF
    assert parse(detail="normal").detail_of(7, now=0) is Detail.NORMAL


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "it is no JSON"),
        (b'{"detail": "steps", "until": 10', "it is no JSON"),
        (b"[" * 10_000, "it is no JSON"),
        (b"\xff\xfe", "it is no JSON"),
        (b"[]", "Input should be an object"),
        (b'{"detail": "steps"}', "until, the Unix time at which it ends, is needed"),
        (b'{"detail": "all", "until": 10}', "detail: Input should be 'off', 'normal' or 'steps'"),
        (b'{"detail": "off", "until": -1}', "until: "),
        (b'{"detail": "off", "until": 1e999}', "until: "),
        (b'{"detail": "off", "until": NaN}', "until: "),
        (b'{"detail": "off", "until": 9, "ranks": [-1]}', "ranks: "),
        (b'{"detail": "off", "until": 9, "ranks": []}', "ranks: "),
        (json.dumps({"detail": "off", "until": 9, "ranks": [0] * 1001}).encode(), "ranks: "),
        (b" " * (MAX_BYTES + 1), "larger than 16384 bytes"),
    ],
)
def test_what_cannot_be_understood_is_refused_in_one_line(data: bytes, words: str) -> None:
    """Torn, hostile and huge files are a ValueError that says what is wrong."""
    with pytest.raises(ValueError, match=r"\A[^\n]+\Z") as refused:
        parse_control(data, MAX_BYTES)
    assert words in str(refused.value)


def test_a_refusal_repeats_nothing_of_the_file() -> None:
    """What stands in the file is anybody's, and the refusal goes into the log."""
    with pytest.raises(ValueError, match="detail") as refused:
        parse(detail="hunter2", until="hunter2", ranks={"hunter2": "hunter2"})
    assert "hunter2" not in str(refused.value)


@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_no_content_does_more_than_be_refused(data: bytes) -> None:
    """Whatever the file holds, it is understood or a ValueError."""
    with suppress(ValueError):
        assert isinstance(parse_control(data, MAX_BYTES), Control)
