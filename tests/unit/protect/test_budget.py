"""The budget of a run: told once at each share, remembered over restarts."""

from __future__ import annotations

from decimal import Decimal

import pytest

from costlens.core.budget_records import BudgetPart, RunTotalsPart
from costlens.core.log import log
from costlens.protect.budget import BudgetWatch
from tests.log_events import capture_events


def make_totals(*, is_partial: bool = False, **cost: str) -> RunTotalsPart:
    """Return totals of a run that cost so much."""
    return RunTotalsPart(time_s=1.0, num_records=1, cost=cost, is_partial=is_partial)


def make_watch(amount: str = "10", action: str = "warn") -> BudgetWatch:
    """Return the watch of a budget in dollars."""
    return BudgetWatch(Decimal(amount), "USD", action, log)


def test_each_share_is_told_once() -> None:
    """At 50, 80 and 100 %: one event each, an error at the end, and none for what comes after."""
    watch = make_watch()
    with capture_events() as events:
        for spent in ("1.00", "4.99", "5.00", "5.10", "8.20", "9.99", "10.00", "12.00", "15.00"):
            watch.look(make_totals(USD=spent))
    told = [(event["budget_share"], event["level"]) for event in events]
    assert told == [(0.5, "warning"), (0.82, "warning"), (1.0, "error")]
    assert watch.part.told == [0.5, 0.8, 1.0]
    assert (watch.part.spent, watch.part.share, watch.is_spent) == ("15.00", 1.5, True)
    assert "100 % of the budget is spent: 10.00 of 10 USD" in events[-1]["message"]


@pytest.mark.parametrize(
    ("spent", "shown"),
    [("16.148386217", "16.15 of"), ("0.0123456789", "0.0123 of"), ("10", "10.00 of")],
)
def test_money_is_told_as_people_write_it(spent: str, shown: str) -> None:
    """The line is rounded; the event beside it keeps every digit."""
    watch = make_watch("0.01")
    with capture_events() as events:
        watch.look(make_totals(USD=spent))
    assert f"is spent: {shown} 0.01 USD" in events[0]["message"]
    assert events[0]["budget_spent"] == spent


def test_a_jump_over_several_shares_is_told_as_the_highest() -> None:
    """A restart finds 90 % spent: one event, and 50 % is not told afterwards."""
    watch = make_watch()
    with capture_events() as events:
        watch.look(make_totals(USD="9.00"))
        watch.look(make_totals(USD="9.10"))
    assert [event["budget_share"] for event in events] == [0.9]
    assert watch.part.told == [0.5, 0.8]


def test_what_earlier_attempts_told_is_not_told_again() -> None:
    """Of the same budget; a raised one is another budget, and is told anew."""
    earlier = BudgetPart(amount="10.00", currency="USD", action="warn", told=[0.5, 0.8])
    for amount, num_events in (("10", 0), ("11", 1)):
        watch = make_watch(amount)
        watch.recall([None, earlier])
        with capture_events() as events:
            watch.look(make_totals(USD="9.00"))
        assert len(events) == num_events


def test_an_unknown_cost_is_said_once_and_is_not_zero() -> None:
    """C106: without a price nobody knows what is spent; money in euros is not money in dollars."""
    watch = make_watch(action="stop")
    with capture_events() as events:
        for _ in range(3):
            watch.look(make_totals())
            part = watch.look(make_totals(EUR="1000.00"))
    assert [event["event"] for event in events] == ["costlens.budget.unknown"]
    assert (part.spent, part.share, part.is_partial, watch.is_spent) == (None, None, True, False)


@pytest.mark.parametrize(("action", "said"), [("warn", False), ("stop", True)])
def test_the_end_is_announced_where_training_stops(action: str, said: bool) -> None:
    """The event at 100 % says what follows, and that more may be spent than is known."""
    watch = make_watch(action=action)
    with capture_events() as events:
        watch.look(make_totals(USD="20.00", is_partial=True))
    (event,) = events
    assert event["message"].startswith("at least 100 %")
    assert ("training stops" in event["message"]) is said
