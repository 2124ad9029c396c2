"""The anchor that turns monotonic readings into wall time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from costlens.core.clock import Anchor, anchor_now, clock_offset_s


def test_wall_time_is_the_anchor_plus_a_monotonic_difference() -> None:
    """Later and earlier readings are placed by their distance, to the nanosecond."""
    anchor = Anchor(wall_ns=1_700_000_000_000_000_001, mono_ns=500)
    assert anchor.to_wall_ns(501) == 1_700_000_000_000_000_002
    assert anchor.to_wall_ns(0) == 1_699_999_999_999_999_501


def test_the_closest_of_three_pairs_of_readings_is_taken() -> None:
    """A try that was interrupted between its readings does not become the anchor."""
    mono: Iterator[int] = iter([0, 9_000, 10_000, 10_004, 20_000, 28_000])
    wall: Iterator[int] = iter([111, 222, 333])
    anchor = anchor_now(lambda: next(mono), lambda: next(wall))
    assert anchor == Anchor(wall_ns=222, mono_ns=10_002)


def test_a_step_of_the_system_clock_moves_nothing() -> None:
    """Wall times come from one anchor: the second reading of a stepped clock has no effect."""
    wall_ns = [1_000]
    anchor = anchor_now(lambda: 50, lambda: wall_ns[0])
    wall_ns[0] = -(10**18)
    assert anchor.to_wall_ns(60) - anchor.to_wall_ns(50) == 10


@pytest.mark.parametrize(
    ("told_s", "offset_s"), [(100.0, 0.0), (99.2, 0.0), (90.0, -9.0), (130.0, 28.0)]
)
def test_an_offset_allows_for_the_second_that_is_cut_off(told_s: float, offset_s: float) -> None:
    """Another clock that may be right is right; otherwise the least offset is told."""
    assert clock_offset_s(told_s, 100.0, 102.0) == pytest.approx(offset_s)
