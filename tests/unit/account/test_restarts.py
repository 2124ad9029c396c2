"""Restart loops: when attempts end badly again and again, and when they do not."""

from __future__ import annotations

from typing import Any

import pytest

from costlens.account.ledger import merge
from costlens.account.restarts import is_past
from costlens.core.gang_records import RestartLoopPart
from tests.unit.account.build import START, make_price, make_record

PRICE = make_price("3600")


def find_loop(*attempts: dict[str, Any]) -> RestartLoopPart | None:
    """Return the loop of a run whose attempts ended like this; 10 s and 10 USD each."""
    records = []
    for number, attempt in enumerate(attempts, start=1):
        made = attempt.pop("made")
        records.append(
            make_record(
                number,
                time_s={"compute": 10.0},
                price=PRICE,
                progress={"iterations": made, "optimizer_steps": made},
                **{"outcome": "failed", **attempt},
            )
        )
    return merge(records, now=records[-1].attempt.heartbeat_time).restart_loop


def at(start: int, end: int, **more: Any) -> dict[str, Any]:
    """Return an attempt that knows where it resumed and how far it came."""
    return {"attempt_start_step": start, "attempt_end_step": end, "made": end - start, **more}


def test_three_bad_ends_at_one_step_are_a_loop() -> None:
    """The first came there by training; the money of the two that came no further is lost."""
    loop = find_loop(at(0, 100), at(50, 100), at(50, 100))
    assert loop == RestartLoopPart(
        num_attempts=3,
        first_attempt=1,
        last_attempt=3,
        step=100,
        num_steps=50,
        since=START,
        error_type=None,
        currency="USD",
        money="20.00",
    )


def test_two_are_none_and_a_longer_one_is_told_in_full() -> None:
    """Two bad ends at one step may be chance; what came before the loop is not in it."""
    assert find_loop(at(0, 100), at(50, 100)) is None
    same = {"attempt_error_type": "ValueError"}
    loop = find_loop(at(0, 40), at(40, 100, **same), *[at(80, 100, **same) for _ in range(4)])
    assert (loop.first_attempt, loop.last_attempt, loop.num_attempts) == (2, 6, 5)
    assert (loop.error_type, loop.money) == ("ValueError", "40.00")


def test_nearly_the_same_step_is_the_same() -> None:
    """A killed rank's last second is missing in its record: a twentieth does not count as more."""
    assert find_loop(at(0, 1000), at(0, 1004, outcome="lost"), at(0, 997)) is not None
    assert find_loop(at(0, 1000), at(900, 1006), at(900, 1012)) is None, "it creeps ahead"


@pytest.mark.parametrize("outcome", ["failed", "lost", "preempted"])
def test_attempts_that_never_make_a_step_are_a_loop(outcome: str) -> None:
    """However they end; where they would have resumed, nobody knows."""
    none = {"made": 0, "outcome": outcome}
    loop = find_loop({**none}, {**none}, {**none})
    assert (loop.num_attempts, loop.step, loop.num_steps) == (3, None, 0)
    assert loop.money == "30.00", "not one of them trained"


def test_an_attempt_that_trained_does_not_lead_a_loop_of_failing_starts() -> None:
    """It ended elsewhere: two starts that fail after it are no loop, three are one of three."""
    assert find_loop(at(0, 500), {"made": 0}, {"made": 0}) is None
    loop = find_loop(at(0, 500), {"made": 0}, {"made": 0}, {"made": 0})
    assert (loop.first_attempt, loop.num_attempts) == (2, 3)


@pytest.mark.parametrize(
    "last",
    [
        at(100, 200),
        at(50, 90, outcome="completed"),
        at(50, 90, outcome="stopped_early"),
        at(50, 90, outcome="interrupted"),
        at(100, 160, outcome="running"),
    ],
)
def test_a_loop_is_over_when_an_attempt_gets_further_or_ends_well(last: dict[str, Any]) -> None:
    """What is past is no alarm; a person who stops a run has seen it."""
    assert find_loop(at(0, 100), at(50, 100), at(50, 100), at(50, 100), {**last}) is None


def test_a_running_attempt_is_in_the_loop_until_it_gets_further() -> None:
    """Its own number and money are not counted: it has not ended."""
    loop = find_loop(at(0, 100), at(50, 100), at(50, 100), at(50, 80, outcome="running"))
    assert (loop.last_attempt, loop.num_attempts, loop.money) == (3, 3, "20.00")
    loop = find_loop(
        *[{"made": 0}] * 0, at(0, 9), at(0, 9), at(0, 9), {"made": 0, "outcome": "running"}
    )
    assert loop is not None


def test_without_a_known_scale_only_the_very_same_end_is_the_same_place() -> None:
    """A plain loop does not tell where it resumed: like counts may be progress, equal ones hardly.

    The step is not known then.
    """
    ends = {"made": 57, "attempt_error_type": "ValueError"}
    loop = find_loop({**ends}, {**ends}, {**ends})
    assert (loop.num_attempts, loop.step, loop.num_steps) == (3, None, 57)
    assert find_loop({**ends}, {**ends}, {**ends, "made": 58}) is None
    assert find_loop({**ends}, {**ends}, {**ends, "attempt_error_type": "KeyError"}) is None


def test_a_missing_price_leaves_the_money_unknown() -> None:
    """A sum without one of the attempts would be too small, and look right."""
    records = [
        make_record(number, time_s={"compute": 10.0}, outcome="failed", price=price)
        for number, price in enumerate([PRICE, None, PRICE], start=1)
    ]
    loop = merge(records, now=START).restart_loop
    assert (loop.num_attempts, loop.money, loop.currency) == (3, None, None)


@pytest.mark.parametrize(
    ("step", "num_steps", "reached", "made", "expected"),
    [
        (100, 50, 100, 50, False),
        (100, 50, 102, 52, False),
        (100, 50, 103, 53, True),
        (100, 50, None, 40, False),
        (None, 57, None, 57, False),
        (None, 57, None, 58, True),
        (None, 0, 0, 0, False),
        (None, 0, 1, 1, True),
    ],
)
def test_when_a_running_attempt_has_left_the_loop(
    step: int | None, num_steps: int, reached: int | None, made: int, expected: bool
) -> None:
    """On the run's scale where it is known, else by more steps than the last one made."""
    loop = RestartLoopPart(
        num_attempts=3, first_attempt=1, last_attempt=3, step=step, num_steps=num_steps, since=0.0
    )
    assert is_past(loop, reached, made) is expected
