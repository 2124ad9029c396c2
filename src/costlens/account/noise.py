"""How sure a ratio over a run's windows is, when neighbouring windows are alike.

Batch means: windows are added up in a few long batches, which depend on one another far less than
windows do, and the spread of the batches tells the error of the whole. What dependence is left
widens it. Pure, and the standard library only: a reader needs no numpy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import NormalDist

from costlens.core.comparison_records import EstimatePart

__all__ = ["MIN_WINDOWS", "Pair", "difference_margin", "estimate_ratio", "student_quantile"]

MIN_WINDOWS = 8
"""Fewer windows do not tell their noise."""

_MIN_BATCHES, _MAX_BATCHES = 4, 12
_WINDOWS_PER_BATCH = 3
# Training on a machine that others use is never wholly without memory from one batch to the next.
_MIN_CORRELATION, _MAX_CORRELATION = 0.3, 0.9

Pair = tuple[float, float]
"""What a window adds to the numerator and to the denominator of a ratio."""


def estimate_ratio(pairs: Sequence[Pair]) -> EstimatePart | None:
    """Return ``sum(numerators) / sum(denominators)`` and its error; None where they do not tell.

    Args:
        pairs: One a window, in the order of time; both numbers >= 0.
    """
    total_x, total_y = math.fsum(x for x, _ in pairs), math.fsum(y for _, y in pairs)
    if len(pairs) < MIN_WINDOWS or total_y <= 0:
        return None
    ratio = total_x / total_y
    wanted = len(pairs) // _WINDOWS_PER_BATCH
    num_batches = max(_MIN_BATCHES, min(_MAX_BATCHES, wanted))
    residuals = [
        math.fsum(x - ratio * y for x, y in batch) for batch in _batches(pairs, num_batches)
    ]
    squares = math.fsum(each * each for each in residuals)
    variance = squares * num_batches / (num_batches - 1) * _inflation(residuals, squares)
    return EstimatePart(
        value=ratio, error=math.sqrt(variance) / total_y, freedom=float(num_batches - 1)
    )


def difference_margin(a: EstimatePart, b: EstimatePart, false_alarm_rate: float) -> float:
    """Return the difference of two means that noise alone exceeds no more often than allowed.

    Welch's: the two runs may be noisy to a different degree.

    Args:
        a: One mean.
        b: The other, of another run.
        false_alarm_rate: Share of comparisons of equal means, 0 to 1, that may exceed it.
    """
    squares = [a.error**2, b.error**2]
    total = math.fsum(squares)
    if total <= 0:
        return 0.0
    parts = (square**2 / each.freedom for square, each in zip(squares, (a, b), strict=True))
    freedom = total**2 / max(math.fsum(parts), math.ulp(0.0))
    return student_quantile(1 - false_alarm_rate / 2, freedom) * math.sqrt(total)


def student_quantile(probability: float, freedom: float) -> float:
    """Return the quantile of Student's t distribution.

    G. W. Hill, Algorithm 396, Communications of the ACM 13 (1970) 619; within 0.1 % from 3
    degrees of freedom on.

    Args:
        probability: In (0.5, 1).
        freedom: Degrees of freedom, >= 3.
    """
    two_sided = 2 * (1 - probability)
    a = 1 / (freedom - 0.5)
    b = (48 / a) / a
    c = ((20700 * a / b - 98) * a - 16) * a + 96.36
    d = ((94.5 / (b + c) - 3) / b + 1) * math.sqrt(a * math.pi / 2) * freedom
    y = (d * two_sided) ** (2 / freedom)
    if y > 0.05 + a:
        x = NormalDist().inv_cdf(probability) * -1
        y = x * x
        if freedom < 5:
            c += 0.3 * (freedom - 4.5) * (x + 0.6)
        c = (((0.05 * d * x - 5) * x - 7) * x - 2) * x + b + c
        y = (((((0.4 * y + 6.3) * y + 36) * y + 94.5) / c - y - 3) / b + 1) * x
        y = math.expm1(a * y * y)
    else:
        inner = ((freedom + 6) / (freedom * y) - 0.089 * d - 0.822) * (freedom + 2) * 3
        y = ((1 / inner + 0.5 / (freedom + 4)) * y - 1) * (freedom + 1) / (freedom + 2) + 1 / y
    return math.sqrt(freedom * y)


def _batches(pairs: Sequence[Pair], num_batches: int) -> list[Sequence[Pair]]:
    cuts = [index * len(pairs) // num_batches for index in range(num_batches + 1)]
    return [pairs[first:last] for first, last in pairwise(cuts)]


def _inflation(residuals: Sequence[float], squares: float) -> float:
    """Return what dependence between neighbouring batches multiplies the variance with, >= 1."""
    if squares <= 0:
        return 1.0
    lagged = math.fsum(e * f for e, f in pairwise(residuals)) / squares
    # Taking the mean off makes a short series look less dependent than it is, by (1 + 4 r) / n
    # (M. G. Kendall, Biometrika 41 (1954) 403), which is 2 / n where it matters.
    unbiased = lagged + 2 / len(residuals)
    correlation = max(_MIN_CORRELATION, min(_MAX_CORRELATION, unbiased))
    return (1 + correlation) / (1 - correlation)
