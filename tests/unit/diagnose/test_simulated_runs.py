"""The diagnosis is judged by a causal model of training runs; these are some of its seeds.

All of them: ``python -m benchmarks.diagnosis``.
"""

from __future__ import annotations

import pytest

from benchmarks.diagnosis.__main__ import describe, judge_all
from benchmarks.diagnosis.cases import plan_cases
from benchmarks.diagnosis.judging import MAX_MONEY_ERROR
from benchmarks.diagnosis.table import MIN_TOP_1, score

NUM_SICK, NUM_HEALTHY = 32, 20
# One fixture makes them all, on whatever machine this is.
pytestmark = pytest.mark.timeout(600)
MIN_CLOSE = 0.9
"""Least share of estimates that are within 15 %: what a small batch and a start of workers cost is
in no record."""


@pytest.fixture(scope="module")
def results():
    """What is said of the simulated runs."""
    return list(judge_all(plan_cases(NUM_SICK, NUM_HEALTHY, first_seed=5000, max_ranks=4)))


def test_the_first_finding_is_the_dominant_cause(results):
    """In 95 % of runs with a planted cause, or two, that which costs the most is named first."""
    wrong = [describe(result) for result in results if result.truth and not result.is_right]
    assert score(results).top_1 >= MIN_TOP_1, "\n".join(wrong)


def test_sound_runs_have_no_finding(results):
    """Sound runs with hidden waits, slow saves, long validations and stops have no finding."""
    wrong = [describe(result) for result in results if not result.truth and result.found]
    assert not wrong, "\n".join(wrong)


def test_money_is_what_mending_saves(results):
    """The money of a right finding is what the mended run saves, the middle one within 15 %.

    What is said to be the least is no more than that.
    """
    total = score(results)
    wrong = [describe(result) for result in results if result.is_close is False]
    assert total.num_stated + total.num_least == total.num_money
    assert total.median_error <= MAX_MONEY_ERROR, "\n".join(wrong)
    assert total.num_close >= MIN_CLOSE * total.num_stated, "\n".join(wrong)
    assert total.num_kept == total.num_least, "\n".join(wrong)
