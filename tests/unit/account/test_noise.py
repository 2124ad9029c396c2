"""How sure a ratio of windows is."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costlens.account.noise import (
    MIN_WINDOWS,
    difference_margin,
    estimate_ratio,
    student_quantile,
)
from costlens.core.comparison_records import EstimatePart


def beyond(quantile: float, freedom: float) -> float:
    """Return the chance of more than `quantile`: Simpson's rule over t = sqrt(freedom) tan(x)."""
    start, num = math.atan(quantile / math.sqrt(freedom)), 4000
    step = (math.pi / 2 - start) / num
    weights = (1 if i in {0, num} else 4 if i % 2 else 2 for i in range(num + 1))
    area = math.fsum(w * math.cos(start + i * step) ** (freedom - 1) for i, w in enumerate(weights))
    log_scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)
    return math.exp(log_scale) / math.sqrt(math.pi) * area * step / 3


@pytest.mark.parametrize("freedom", [3, 4, 5.5, 7, 14, 15, 30, 400])
@pytest.mark.parametrize("tail", [0.05, 0.005, 5e-4, 5e-5])
def test_quantiles_are_those_of_students_t(freedom: float, tail: float) -> None:
    """What lies beyond a quantile is the tail it was asked for, by the density itself."""
    quantile = student_quantile(1 - tail, freedom)
    assert beyond(quantile, freedom) == pytest.approx(tail, rel=0.02)


def test_a_ratio_is_that_of_the_sums() -> None:
    """Windows with more steps weigh more; the error is that of the windows' own spread."""
    pairs = [(2.0, 1.0), (6.0, 3.0)] * 8
    found = estimate_ratio(pairs)
    assert found is not None
    assert (found.value, found.error) == (2.0, 0.0)


def test_a_few_windows_do_not_tell() -> None:
    """Nothing is made up where there is too little, or nothing was counted."""
    assert estimate_ratio([(1.0, 1.0)] * (MIN_WINDOWS - 1)) is None
    assert estimate_ratio([(1.0, 0.0)] * 20) is None
    assert estimate_ratio([]) is None


def test_independent_windows_have_the_textbook_error() -> None:
    """Of windows that know nothing of one another it is the standard error, and a third more."""
    source = random.Random(7)
    errors = []
    for _ in range(200):
        found = estimate_ratio([(source.gauss(1.0, 0.1), 1.0) for _ in range(64)])
        assert found is not None
        errors.append(found.error)
    widened = math.sqrt(1.3 / 0.7)
    assert math.fsum(errors) / len(errors) == pytest.approx(0.1 / 8 * widened, rel=0.15)


def test_windows_that_drift_have_a_larger_error() -> None:
    """A slow wave is noise, of which the textbook's formula sees only a small part."""
    wave = [(1 + 0.1 * math.sin(index / 40), 1.0) for index in range(100)]
    found = estimate_ratio(wave)
    assert found is not None
    textbook = statistics.stdev(x for x, _ in wave) / math.sqrt(len(wave))
    assert found.error > 4 * textbook


@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), min_size=MIN_WINDOWS, max_size=80),
    st.floats(1e-3, 1e3),
)
def test_noise_scales_with_the_unit(pairs: list[tuple[float, float]], factor: float) -> None:
    """Milliseconds are as noisy as seconds, and nothing is ever negative or not a number."""
    found = estimate_ratio(pairs)
    scaled = estimate_ratio([(x * factor, y) for x, y in pairs])
    assert (found is None) == (scaled is None)
    if found is not None and scaled is not None:
        assert math.isfinite(found.error)
        assert scaled.value == pytest.approx(found.value * factor, rel=1e-9, abs=1e-9)
        assert scaled.error == pytest.approx(found.error * factor, rel=1e-6, abs=1e-6)


def test_the_margin_widens_with_either_run() -> None:
    """Two quiet runs are told apart sooner than a quiet one and a noisy one."""
    quiet = EstimatePart(value=1.0, error=0.001, freedom=15)
    noisy = EstimatePart(value=1.0, error=0.02, freedom=7)
    margins = [
        difference_margin(a, b, rate)
        for rate in (0.05, 0.01, 0.001)
        for a, b in ((quiet, quiet), (quiet, noisy), (noisy, noisy))
    ]
    for quiet_pair, mixed, noisy_pair in zip(
        margins[::3], margins[1::3], margins[2::3], strict=True
    ):
        assert quiet_pair < mixed < noisy_pair
    assert margins[0] < margins[3] < margins[6]
