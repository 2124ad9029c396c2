"""Trace periods.

What they add up to, which iterations they choose, and the hourly limit on spans.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from costlens.core.clock import NS_PER_S
from costlens.core.phases import NUM_PHASES, Phase
from costlens.core.quality import Observation
from costlens.core.telemetry_records import Detail
from costlens.core.window import Iteration, Sketch, Window
from costlens.export.periods import (
    MAX_SPANS_PER_HOUR,
    Period,
    SpanBudget,
    added_durations,
    lay_out,
)


def phases(**seconds: float) -> tuple[int, ...]:
    """Return nanoseconds per phase."""
    return tuple(round(seconds.get(phase.name.lower(), 0) * NS_PER_S) for phase in Phase)


def iteration(
    index: int, reason: str, seconds: float = 1.0, *, is_asked: bool = False
) -> Iteration:
    """Return a kept iteration of two phases."""
    phase_ns = phases(data_wait=seconds / 4, forward=seconds * 3 / 4)
    end_ns = round(seconds * NS_PER_S)
    return Iteration(index, 0, end_ns, phase_ns, sum(phase_ns), reason, is_asked)


def window(start_s: float, end_s: float, **change: object) -> Window:
    """Return a window of five iterations of a second each."""
    fields: dict[str, object] = {
        "index": 0,
        "start_ns": round(start_s * NS_PER_S),
        "end_ns": round(end_s * NS_PER_S),
        "phase_ns": phases(forward=end_s - start_s),
        "counts": {"optimizer_steps": 5, "tokens": 500},
        "num_iterations": 5,
        "iteration_sum_ns": 5 * NS_PER_S,
        "iteration_max_ns": 2 * NS_PER_S,
        "kept": (),
    }
    return Window(**{**fields, **change})  # type: ignore[arg-type]


def test_windows_add_up() -> None:
    """Counts, times and iterations are sums, the longest iteration the maximum.

    Quality is the newest, and rates are per second of the period.
    """
    period = Period(0, 0, 0)
    durations = Sketch()
    for _ in range(5):
        durations.add(NS_PER_S)
    period.add(window(0, 10), durations, {"loss": 2.0})
    period.add(
        window(10, 20, iteration_max_ns=3 * NS_PER_S, counts={"tokens": 300}),
        Sketch(),
        {"loss": 1.5},
    )
    found = period.attributes()
    assert found["costlens.steps"] == 5
    assert found["costlens.tokens.tokens"] == 800
    assert found["costlens.tokens.tokens.rate"] == 40.0
    assert found["costlens.steps.rate"] == 0.25
    assert found["costlens.phase.time.forward"] == 20.0
    assert found["costlens.iteration.duration.mean"] == 1.0
    assert found["costlens.iteration.duration.max"] == 3.0
    assert abs(found["costlens.iteration.duration.median"] - 1.0) < 0.01
    assert found["costlens.quality.loss"] == 1.5


def test_what_is_not_known_is_not_said() -> None:
    """C108: a period without iterations, tokens or even duration has no rates and no durations."""
    period = Period(0, 0, 0)
    period.add(
        window(0, 0, counts={}, num_iterations=0, iteration_sum_ns=0, iteration_max_ns=0),
        Sketch(),
        {},
    )
    assert period.attributes() == {}


def test_added_durations_are_the_difference_of_two_readings() -> None:
    """Only what was counted since the last reading belongs to a window."""
    before, now = Sketch(), Sketch()
    for value in (1.0, 1.0, 5.0):
        before.add(round(value * NS_PER_S))
        now.add(round(value * NS_PER_S))
    now.add(9 * NS_PER_S)
    added = added_durations(now.bins, before.bins)
    assert added.count == 1
    assert abs(added.quantile_ns(0.5) / NS_PER_S - 9) < 0.1  # type: ignore[operator]


def test_phases_are_laid_end_to_end_within_their_iteration() -> None:
    """Phases follow one another without gaps, in the usual order, and never leave the iteration."""
    kept = Iteration(0, 100, 1000, (0, 0, 300, 0, 500, 300, *[0] * (NUM_PHASES - 6)), 900, "slow")
    assert list(lay_out(kept)) == [
        ("data_wait", 100, 400),
        ("forward", 400, 900),
        ("backward", 900, 1000),
    ]


def test_a_period_shows_first_bad_one_sampled_and_the_slowest() -> None:
    """Of what was kept in a minute, a few iterations get spans.

    The first, the bad ones, the first sampled and the slowest; two more slow ones while there is
    room.
    """
    period = Period(0, 0, 0)
    period.kept = [
        iteration(0, "first"),
        *(iteration(index, "sampled") for index in (10, 20, 30)),
        *(iteration(index, "slow", 2 + index / 100) for index in (11, 12, 13, 14, 15)),
    ]
    period.alarms = [Observation("loss", float("nan"), 30, 0)]
    chosen = [kept.index for kept in period.choose(SpanBudget())]
    assert chosen == [0, 10, 13, 14, 15, 30]


def test_little_room_leaves_the_slowest() -> None:
    """With less than half of the budget left, one sampled and the slowest iteration remain.

    What was not chosen is not counted as dropped.
    """
    budget = SpanBudget()
    assert budget.take(200)
    period = Period(0, 0, 0)
    period.kept = [iteration(10, "sampled"), *(iteration(i, "slow", i) for i in (11, 12, 13))]
    assert [kept.index for kept in period.choose(budget)] == [10, 13]
    assert budget.num_refused == 0


def test_what_is_asked_for_leaves_room_for_every_period() -> None:
    """Iterations that were asked for come last, in order, and leave a fifth of the budget.

    Asking for everything is no promise to show it: nothing is counted as dropped.
    """
    budget = SpanBudget()
    period = Period(0, 0, 0)
    period.kept = [iteration(i, "asked", is_asked=True) for i in range(100)]
    period.kept.append(iteration(100, "slow", is_asked=True))
    chosen = [kept.index for kept in period.choose(budget)]
    assert chosen == [*range(79), 100]
    assert budget.num_refused == 0
    assert budget.take(60)


def test_a_period_names_what_was_asked_in_it() -> None:
    """The newest detail that was not normal in one of its windows."""
    period = Period(0, 0, 0)
    assert period.detail is Detail.NORMAL
    for detail in (Detail.NORMAL, Detail.OFF, Detail.STEPS, Detail.NORMAL):
        period.add(window(0, 10, detail=detail), Sketch(), {})
    assert period.detail is Detail.STEPS


def test_what_does_not_fit_is_counted() -> None:
    """An iteration that was chosen and does not fit the limit counts with all its spans."""
    budget = SpanBudget()
    assert budget.take(299)
    period = Period(0, 0, 0)
    period.kept = [iteration(10, "sampled")]
    assert period.choose(budget) == []
    assert budget.num_refused == 3


@given(st.lists(st.tuples(st.floats(0, 600), st.integers(1, 400)), max_size=300))
def test_no_hour_sees_more_than_the_limit(requests: list[tuple[float, int]]) -> None:
    """Whatever is asked for and when, no window of an hour holds more than 1500 spans (law 5)."""
    budget, now_s = SpanBudget(), 0.0
    granted: list[tuple[float, int]] = []
    for pause_s, num in requests:
        now_s += pause_s
        budget.refill(round(now_s * NS_PER_S))
        if budget.take(num):
            granted.append((now_s, num))
    for start_s, _ in granted:
        within = [num for at_s, num in granted if start_s <= at_s < start_s + 3600]
        assert sum(within) <= MAX_SPANS_PER_HOUR


def test_the_usual_period_fits_for_ever() -> None:
    """The usual spans of a minute fit for a whole day.

    A root, a rank, a sampled and a slow iteration with eight phases each.
    """
    budget = SpanBudget()
    for minute in range(24 * 60):
        budget.refill(minute * 60 * NS_PER_S)
        assert budget.take(1)
        assert budget.take(1)
        assert budget.take(9)
        assert budget.take(9)
    assert budget.num_refused == 0
