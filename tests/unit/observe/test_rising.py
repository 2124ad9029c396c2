"""Sums of counters that may wrap, reset, vanish and come back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from costlens.core.clock import NS_PER_S
from costlens.observe.rising import RecentRate, RisingSum


def test_what_was_counted_before_the_first_look_does_not_matter() -> None:
    """Each counter counts from where it was seen first, also one that comes later."""
    rising = RisingSum()
    assert rising.add({}) is None
    assert rising.add({"eth0": 1_000}) == 0
    assert rising.add({"eth0": 1_010, "eth1": 5_000}) == 10
    assert rising.add({"eth0": 1_010, "eth1": 5_001}) == 11


def test_a_counter_that_begins_again_has_counted_what_it_shows() -> None:
    """A reset, a wrap and a new device of the same name never take anything away."""
    rising = RisingSum()
    rising.add({"ib0": 2**32 - 10})
    assert rising.add({"ib0": 30}) == 30
    assert rising.add({}) == 30  # gone for a moment
    assert rising.add({"ib0": 31}) == 31


@given(st.lists(st.tuples(st.integers(0, 10**9), st.booleans()), max_size=30))
def test_the_sum_never_falls_and_never_exceeds_what_was_counted(
    steps: list[tuple[int, bool]],
) -> None:
    """Whatever resets, the sum rises by at most what the device really counted."""
    rising, shown, counted, last = RisingSum(), 0, 0, 0.0
    rising.add({"x": 0})
    for added, resets in steps:
        shown = added if resets else shown + added
        counted += added
        total = rising.add({"x": shown})
        assert total is not None
        assert last <= total <= counted
        last = total


def test_the_rate_is_that_of_the_last_ten_seconds() -> None:
    """A burst is forgotten after five samples of two seconds."""
    rate = RecentRate()
    assert rate.add(0, 0.0) is None
    assert rate.add(2 * NS_PER_S, 200.0) == 100.0
    for index in range(2, 7):
        latest = rate.add(index * 2 * NS_PER_S, 200.0)
    assert latest == 0.0


def test_a_rate_needs_time_between_two_samples() -> None:
    """The same moment twice, a clock that stands and an unknown sum give none."""
    rate = RecentRate()
    rate.add(5, 1.0)
    assert rate.add(5, 2.0) is None
    assert rate.add(NS_PER_S, None) is None
    assert rate.add(2 * NS_PER_S, 7.0) is None
    assert rate.add(3 * NS_PER_S, 8.0) == 1.0
