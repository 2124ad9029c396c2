"""Windows folded into columns."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costlens.core.training_records import WindowPart
from costlens.core.use_records import UsePart
from costlens.export.page.columns import MAX_VALUES, Column, Fold

Made = tuple[int, int, int]  # attempt, nanoseconds of forward, nanoseconds of data_wait


def _window(index: int, forward: int = 1, wait: int = 0, **parts: object) -> WindowPart:
    return WindowPart.model_validate(
        {
            "index": index,
            "start_time": 1000.0 + 10 * index,
            "end_time": 1010.0 + 10 * index,
            "phase_ns": {"forward": forward, "data_wait": wait},
            "counts": {"iterations": 1},
            **parts,
        }
    )


def _sum(columns: list[Column]) -> Counter[str]:
    total: Counter[str] = Counter()
    for column in columns:
        total.update(column.phase_ns)
    return total


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=30),
    limit=st.integers(2, 20),
    beside=st.integers(0, 40),
)
def test_no_nanosecond_is_lost_whatever_is_folded(
    sizes: list[int], limit: int, beside: int
) -> None:
    """The columns hold exactly the times and counts of the windows, and there are never more."""
    fold = Fold(limit)
    index = 0
    for attempt, size in enumerate(sizes, 1):
        for _ in range(size):
            fold.append(attempt, _window(index, forward=index + 1, wait=3))
            index += 1
            assert len(fold.columns) <= limit
    for n in range(beside):
        fold.beside(1 + n % len(sizes), _window(n, forward=7, wait=0))
    expected = Counter(forward=sum(range(1, index + 1)) + 7 * beside, data_wait=3 * index)
    assert _sum(fold.columns) == +expected
    assert sum(c.num_windows for c in fold.columns) == index + beside
    assert sum(c.counts["iterations"] for c in fold.columns) == index + beside
    starts = [column.start_s for column in fold.columns]
    assert starts == sorted(starts)


def test_few_windows_stay_as_they_are() -> None:
    """A short run is drawn window by window, an attempt never shares a column with another."""
    fold = Fold(10)
    for n in range(4):
        fold.append(1 + n // 2, _window(n))
    assert [(c.start_s, c.end_s, c.attempts) for c in fold.columns] == [
        (1000.0, 1010.0, [1]),
        (1010.0, 1020.0, [1]),
        (1020.0, 1030.0, [2]),
        (1030.0, 1040.0, [2]),
    ]


def test_many_attempts_share_columns_only_where_there_are_too_many() -> None:
    """A job in a restart loop has more attempts than columns: they are told in the column."""
    fold = Fold(4)
    for n in range(9):
        fold.append(n + 1, _window(n))
    assert len(fold.columns) <= 4
    assert [n for column in fold.columns for n in column.attempts] == [*range(1, 10)]


def test_extremes_survive_the_folding() -> None:
    """The slowest iteration of a week is the most of its column, not averaged away."""
    fold = Fold(2)
    for n in range(1000):
        most = 9.0 if n == 617 else 0.2
        fold.append(1, _window(n, num_iterations=10, iteration_mean_s=0.1, iteration_max_s=most))
    assert max(column.iteration.most for column in fold.columns) == 9.0
    assert min(column.iteration.least for column in fold.columns) == 0.1
    assert fold.columns[0].iteration.mean == pytest.approx(0.1)


def test_another_ranks_window_counts_where_its_middle_falls() -> None:
    """Ranks close their windows at moments of their own; one before the first counts in it."""
    fold = Fold(10)
    for n in range(3):
        fold.append(1, _window(n, forward=0))
    fold.beside(1, _window(1, forward=5))
    fold.beside(1, _window(-7, forward=3))
    fold.beside(2, _window(1, forward=99))  # an attempt of which nothing is known
    assert [column.phase_ns["forward"] for column in fold.columns] == [3, 5, 0]


def test_means_are_weighted_by_what_they_stand_for() -> None:
    """A window of 10 s counts ten times as much as one of 1 s in the mean load."""
    column = Column(0.0, 0.0, [1])
    column.add(_window(0, use=UsePart(cpu_ratio=0.2)))
    short = _window(1, use=UsePart(cpu_ratio=0.9)).model_copy(update={"end_time": 1011.0})
    column.add(short)
    assert column.use["cpu_ratio"].mean == pytest.approx((0.2 * 10 + 0.9) / 11)
    assert (column.use["cpu_ratio"].least, column.use["cpu_ratio"].most) == (0.2, 0.9)
    assert "gpu_utilization" not in column.use


def test_what_is_no_number_and_what_is_too_much_is_left_out() -> None:
    """NaN has no place on an axis, and a thousand metrics would make the page too large."""
    column = Column(0.0, 0.0, [1])
    column.add(_window(0, quality={"loss": float("nan"), "fine": 1.0}))
    column.add(_window(1, quality={f"metric {n}": 1.0 for n in range(1000)}))
    assert "loss" not in column.quality
    assert "fine" in column.quality
    assert len(column.quality) == MAX_VALUES


def test_a_phase_of_a_newer_costlens_counts_as_other() -> None:
    """Its time is there, under a name that the page has a colour for."""
    column = Column(0.0, 0.0, [1])
    column.add(_window(0, forward=2).model_copy(update={"phase_ns": {"teleport": 5, "other": 1}}))
    assert column.phase_ns == Counter(other=6)


def test_the_work_of_folding_is_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten times the windows cost ten times the merges: at most one a window."""
    merges = 0
    merge = Column.merge

    def counted(column: Column, later: Column) -> None:
        nonlocal merges
        merges += 1
        merge(column, later)

    monkeypatch.setattr(Column, "merge", counted)
    for num in (1_000, 10_000):
        merges, fold = 0, Fold(60)
        for n in range(num):
            fold.append(1, _window(n))
        assert 0 < merges <= num
        assert 30 <= len(fold.columns) <= 60
