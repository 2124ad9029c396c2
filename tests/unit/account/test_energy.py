"""Energy from counter and power: which is believed, and what the record says of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costlens.account.energy import EnergyMeter

S = 1_000_000_000
WATTS = 300.0


def _run(
    counter: Callable[[float], float | None],
    power: Callable[[float], float | None],
    *,
    until_s: int = 300,
    every_s: int = 2,
) -> EnergyMeter:
    meter = EnergyMeter()
    for time_s in range(0, until_s + 1, every_s):
        meter.add(time_s * S, counter(time_s), power(time_s), 700.0)
    return meter


def _constant(_time_s: float) -> float:
    return WATTS


def test_the_counter_is_exact() -> None:
    """What the counter says is the energy, whatever the power did between the samples."""
    meter = _run(lambda t: 9e6 + 310.0 * t, _constant)
    assert meter.joules == pytest.approx(310 * 300)
    assert (meter.source, meter.seconds, meter.is_disputed) == ("counter", 300, False)


def test_power_stands_in_for_a_missing_counter() -> None:
    """A line between two samples of the power."""
    meter = _run(lambda _: None, lambda t: t)
    assert meter.joules == pytest.approx(300**2 / 2)
    assert meter.source == "power"


def test_nothing_known_is_no_energy() -> None:
    """Neither counter nor power: absent, not 0."""
    meter = _run(lambda _: None, lambda _: None)
    assert (meter.joules, meter.source, meter.seconds) == (None, None, 0)


def test_a_reset_costs_no_energy() -> None:
    """The interval in which the counter went back is measured by the power."""
    meter = _run(lambda t: 5e6 + WATTS * t if t < 151 else WATTS * (t - 151), _constant)
    assert meter.joules == pytest.approx(WATTS * 300)
    assert meter.source == "both"


def test_a_counter_that_stands_still_is_not_believed() -> None:
    """A device that draws power uses energy."""
    meter = _run(lambda _: 5e6, _constant)
    assert meter.joules == pytest.approx(WATTS * 300)
    assert meter.source == "power"


def test_a_counter_that_leaps_is_not_believed() -> None:
    """No device draws twice its limit: such an interval is measured by the power."""
    meter = _run(lambda t: WATTS * t + (1e9 if t >= 100 else 0), _constant)
    assert meter.joules == pytest.approx(WATTS * 300)


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_counter_that_disagrees_is_given_up(factor: float) -> None:
    """Over a minute the power is a fair mean: a counter far from it is wrong, and not used on."""
    meter = _run(lambda t: factor * WATTS * t, _constant)
    assert meter.is_disputed
    assert meter.source == "both"
    already_told = max(factor, 1.0) * WATTS * 60
    assert meter.joules == pytest.approx(already_told + WATTS * 240)


def test_a_burst_is_no_dispute() -> None:
    """A counter 20 % away from 2 s samples of a bursting load is the better one."""
    meter = _run(lambda t: 1.2 * WATTS * t, _constant)
    assert not meter.is_disputed
    assert meter.joules == pytest.approx(1.2 * WATTS * 300)


def test_a_gap_is_not_guessed() -> None:
    """Power says nothing of a gap of minutes; a counter does."""
    by_power, by_counter = EnergyMeter(), EnergyMeter()
    for time_s in (0, 2, 100, 102):
        by_power.add(time_s * S, None, WATTS)
        by_counter.add(time_s * S, WATTS * time_s, WATTS)
    assert (by_power.joules, by_power.seconds) == (pytest.approx(WATTS * 4), 4)
    assert (by_counter.joules, by_counter.seconds) == (pytest.approx(WATTS * 102), 102)


def test_a_pause_is_nobodys() -> None:
    """After a pause the next sample begins anew, whatever the counter says."""
    meter = EnergyMeter()
    meter.add(0, 0.0, WATTS)
    meter.add(2 * S, 2 * WATTS, WATTS)
    meter.pause()
    meter.add(50 * S, 1e9, WATTS)
    meter.add(52 * S, 1e9 + 2 * WATTS, WATTS)
    assert (meter.joules, meter.seconds) == (pytest.approx(4 * WATTS), 4)


_VALUES = st.none() | st.floats(0, 1e12, allow_nan=False)


@given(st.lists(st.tuples(st.integers(0, 100), _VALUES, _VALUES, _VALUES), max_size=60))
def test_energy_never_goes_back(samples: list[tuple[int, float, float, float]]) -> None:
    """Whatever a device reports, the sum that is exported as a counter only grows."""
    meter, now_ns, before = EnergyMeter(), 0, 0.0
    for seconds, *values in samples:
        now_ns += seconds * S
        meter.add(now_ns, *values)
        assert (meter.joules or 0.0) >= before
        before = meter.joules or 0.0
        assert (meter.joules is None) == (meter.source is None)
