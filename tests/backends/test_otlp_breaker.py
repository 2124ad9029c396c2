"""When exports are tried again; all on a clock that only the test moves."""

from __future__ import annotations

from costlens.core.clock import NS_PER_S
from costlens.export.otel_breaker import Breaker
from tests.backends.otlp_clock import Hand


def _waits(breaker: Breaker, clock: Hand, num_failures: int) -> list[float]:
    waits = []
    for _ in range(num_failures):
        breaker.record(ok=False)
        waits.append(breaker.wait_ns() / NS_PER_S)
        clock.forward(waits[-1])
    return waits


def test_breaker_retries_briefly_then_probes_ever_more_rarely() -> None:
    """Two retries a second apart, then probes after 30, 60, 120, 240 s and at most every 300 s."""
    clock = Hand()
    breaker = Breaker(clock)
    assert breaker.wait_ns() == 0
    assert _waits(breaker, clock, 9) == [1, 1, 30, 60, 120, 240, 300, 300, 300]


def test_one_success_closes_the_breaker() -> None:
    """After a success the next failure is the first again."""
    clock = Hand()
    breaker = Breaker(clock)
    _waits(breaker, clock, 5)
    assert breaker.is_open
    breaker.record(ok=True)
    assert not breaker.is_open
    assert breaker.wait_ns() == 0
    assert _waits(breaker, clock, 1) == [1]


def test_breaker_stands_an_outage_of_weeks() -> None:
    """Thousands of failed probes neither overflow nor lengthen the interval."""
    clock = Hand()
    assert _waits(Breaker(clock), clock, 5000)[-1] == 300


def test_spread_keeps_ranks_apart() -> None:
    """Breakers with different spreads do not probe in step."""
    clock = Hand()
    assert _waits(Breaker(clock, spread=0.8), clock, 3)[-1] == 24
    assert _waits(Breaker(clock, spread=1.2), clock, 3)[-1] == 36
