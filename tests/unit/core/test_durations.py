"""The histogram and the sketch of iteration durations."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costlens.core.clock import NS_PER_S
from costlens.core.durations import ITERATION_BOUNDS_S, Histogram, Sketch

DURATIONS = st.lists(st.integers(1, 10**13), min_size=1, max_size=200)


def test_usual_iterations_fall_into_different_buckets() -> None:
    """C094: 0.02, 0.3, 2 and 45 s are told apart, and the bounds span 1 ms to 60 s and more."""
    histogram = Histogram()
    for value_s in (0.02, 0.3, 2, 45):
        histogram.add(int(value_s * NS_PER_S))
    assert sorted(histogram.buckets, reverse=True)[:5] == [1, 1, 1, 1, 0]
    assert ITERATION_BOUNDS_S[0] <= 0.001
    assert ITERATION_BOUNDS_S[-1] >= 60


@pytest.mark.parametrize("index", range(len(ITERATION_BOUNDS_S)))
def test_a_duration_on_a_bound_belongs_below_it(index: int) -> None:
    """Bounds are inclusive above, as OTel's are."""
    bound_ns = round(ITERATION_BOUNDS_S[index] * NS_PER_S)
    histogram = Histogram()
    histogram.add(bound_ns)
    histogram.add(bound_ns + 1)
    assert histogram.buckets[index : index + 2] == [1, 1]


def test_nothing_is_too_long_or_too_short_to_count() -> None:
    """There is a bucket for 0 and one for whatever exceeds the last bound."""
    histogram = Histogram()
    histogram.add(0)
    histogram.add(10**15)
    assert (histogram.buckets[0], histogram.buckets[-1]) == (1, 1)
    assert (histogram.count, histogram.sum_ns) == (2, 10**15)


def test_a_copy_of_a_histogram_does_not_change() -> None:
    """A snapshot keeps its numbers while the run goes on."""
    histogram = Histogram()
    histogram.add(1)
    copy = histogram.copy()
    histogram.add(1)
    assert (copy.count, copy.sum_ns, sum(copy.buckets)) == (1, 1, 1)


@given(values=DURATIONS, q=st.floats(0, 1))
def test_a_quantile_is_within_one_percent(values: list[int], q: float) -> None:
    """Whatever was counted, a quantile lies within 1 % of the exact one (lower of two)."""
    sketch = Sketch()
    for value_ns in values:
        sketch.add(value_ns)
    exact_ns = sorted(values)[int(q * (len(values) - 1))]
    assert sketch.quantile_ns(q) == pytest.approx(exact_ns, rel=0.0101)


@given(first=DURATIONS, second=DURATIONS)
def test_merged_sketches_are_the_sketch_of_everything(first: list[int], second: list[int]) -> None:
    """Sketches of ranks merge without loss."""
    merged, other, whole = Sketch(), Sketch(), Sketch()
    for value_ns in first:
        merged.add(value_ns)
        whole.add(value_ns)
    for value_ns in second:
        other.add(value_ns)
        whole.add(value_ns)
    merged.merge(other)
    assert merged == whole


def test_an_empty_sketch_has_no_quantile() -> None:
    """Nothing counted is unknown, not zero."""
    assert Sketch().quantile_ns(0.5) is None


def test_a_long_run_takes_no_more_memory_than_its_range() -> None:
    """A hundred thousand durations between 10 and 20 ms fill few bins."""
    sketch = Sketch()
    values = [10_000_000 + 100 * number for number in range(100_000)]
    for value_ns in values:
        sketch.add(value_ns)
    assert len(sketch.bins) < 40
    assert sketch.quantile_ns(0.5) == pytest.approx(statistics.median(values), rel=0.01)


@given(value_ns=st.integers(0, 10**12), count=st.integers(0, 50))
def test_counting_at_once_is_counting_often(value_ns: int, count: int) -> None:
    """``count=n`` is the same as adding n times."""
    at_once, often = (Histogram(), Sketch()), (Histogram(), Sketch())
    for kind in (0, 1):
        at_once[kind].add(value_ns, count)
        for _ in range(count):
            often[kind].add(value_ns)
    assert at_once[0] == often[0]
    assert at_once[1].count == often[1].count
    assert {k: v for k, v in at_once[1].bins.items() if v} == often[1].bins
