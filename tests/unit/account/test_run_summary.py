"""What a run is reduced to before it is compared."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costlens.account.baselines import parse_baseline, write_baseline
from costlens.account.ledger import merge
from costlens.account.run_summary import choose_leads, summarize_run
from costlens.account.steady import find_steady
from costlens.core.training_records import RatesPart
from costlens.errors import RecordError
from tests.unit.account.build import START, make_record
from tests.unit.account.runs import make_rank, make_windows, noisy_times, summarize


def test_speed_is_that_of_the_job() -> None:
    """Two ranks make one step together, twice the tokens, and pay twice."""
    windows = make_windows(noisy_times(1, 30, share=0.0), startup_s=0.001)
    ranks = [make_rank(windows, rank=rank, world_size=2) for rank in (0, 1)]
    job = summarize_run(merge(ranks, now=START + 1e6), ranks, [windows])
    alone = summarize(windows)
    for name, factor in (("step_s", 1), ("tokens_per_s", 2), ("cost_per_million_tokens", 1)):
        mine, theirs = job.figures[name], alone.figures[name]
        assert mine.steady is not None
        assert theirs.steady is not None
        assert mine.value == pytest.approx((theirs.value or 0) * factor, rel=1e-3)
        assert mine.steady.value == pytest.approx(theirs.steady.value * factor, rel=1e-3)
        assert mine.steady.value == pytest.approx(mine.value, rel=2e-2)


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_money_is_told_per_step_where_no_tokens_are_counted(num_ranks: int) -> None:
    """Ranks make a step together and each pays for its time in it: two pay twice."""
    windows = make_windows(noisy_times(1, 30, share=0.0), startup_s=0.001)
    ranks = [make_rank(windows, rank=rank, world_size=num_ranks) for rank in range(num_ranks)]
    uncounted = [
        rank.model_copy(update={"progress": rank.progress.model_copy(update={"tokens": None})})
        for rank in ranks
    ]
    job = summarize_run(merge(uncounted, now=START + 1e6), uncounted, [windows])
    money = [name for name in job.figures if name.startswith("cost_")]
    assert money == ["cost_per_productive_step"]
    figure = job.figures["cost_per_productive_step"]
    assert figure.steady is not None
    assert figure.value == pytest.approx(0.1 * num_ranks, rel=1e-3)  # 3600 an hour
    assert figure.steady.value == pytest.approx(0.1 * num_ranks, rel=1e-3)


def test_an_attempt_after_a_restart_adds_its_windows() -> None:
    """C056: both attempts' steady windows make the speed, and neither one's start-up."""
    first, second = (make_windows(noisy_times(seed, 15), startup_s=30.0) for seed in (1, 2))
    ranks = [make_rank(first), make_rank(second, attempt=2, start_time=START + 1e4)]
    run = summarize_run(merge(ranks, now=START + 1e6), ranks, [first, second])
    assert (run.num_attempts, run.num_windows, run.num_startup_windows) == (2, 28, 2)
    step = run.figures["step_s"]
    assert step.value == pytest.approx(0.1, rel=0.05)


def test_attempts_of_another_size_are_left_out_of_speed() -> None:
    """A step of eight ranks is another step than one of four; the newest size counts."""
    small = make_rank(make_windows([0.2] * 9), world_size=4)
    large = make_rank(make_windows([0.1] * 9), attempt=2, world_size=8)
    assert choose_leads([small, large]) == [large]
    assert choose_leads([make_record()]) == []


def test_windows_without_training_are_no_steady_ones() -> None:
    """Start-up, a restore, the end, and evaluations before the first step are left out."""
    windows = make_windows([0.1] * 12)
    idle = windows[1].model_copy(update={"num_iterations": 0, "iteration_mean_s": None})
    ending = windows[11].model_copy(update={"phase_ns": {"shutdown": 5, "compute": 5}})
    steady = find_steady([[windows[0], idle, *windows[2:11], ending]])
    assert [window.index for window in steady.windows] == [*range(2, 11)]
    assert (steady.num_startup, steady.num_warmup) == (3, 0)


@pytest.mark.parametrize("num_slow", [0, 1, 4, 9])
def test_a_warm_up_ends_where_speed_settles(num_slow: int) -> None:
    """C009: first windows that get faster are left out, as many as there are, to a quarter."""
    times_s = noisy_times(11, 60, share=0.02)
    for index in range(num_slow):
        times_s[1 + index] *= 3 - index / num_slow
    steady = find_steady([make_windows(times_s)])
    assert (steady.num_startup, steady.num_warmup) == (1, num_slow)


def test_a_run_that_got_slower_has_no_warm_up() -> None:
    """Quick first windows are training, too: what slowed it down later is no secret to keep."""
    times_s = [*noisy_times(12, 10, mean_s=0.05), *noisy_times(13, 50, mean_s=0.1)]
    assert find_steady([make_windows(times_s)]).num_warmup == 0


def test_a_run_that_counts_no_steps_has_iterations() -> None:
    """Where no optimizer is watched, time is told per iteration, and money per step is unknown."""
    windows = [
        window.model_copy(update={"counts": {"iterations": 100}})
        for window in make_windows(noisy_times(1, 20))
    ]
    record = make_record(
        time_s={"startup": 5.0, "compute": 195.0},
        progress={"iterations": 2000},
        rates=RatesPart(iterations_per_s=10.0),
        iteration_time=make_rank(make_windows([0.1])).iteration_time,
    )
    run = summarize_run(merge([record], now=START + 1e6), [record], [windows])
    assert run.per == "iteration"
    assert run.figures["iteration_s"].value == pytest.approx(0.1, rel=0.05)
    assert run.figures["cost_per_productive_step"].unknown


def test_a_run_without_any_window_has_its_rates() -> None:
    """A run of seconds has figures without noise; one that never trained has reasons."""
    record = make_rank(make_windows([0.1]))
    run = summarize_run(merge([record], now=START + 1e6), [record], [[]])
    assert run.figures["step_s"].value == pytest.approx(0.1)
    assert run.figures["step_s"].steady is None
    empty = make_record(time_s={"startup": 3.0})
    never = summarize_run(merge([empty], now=START + 1e6), [empty], [])
    assert never.figures["iteration_s"].unknown is not None
    assert never.figures["goodput"].value in {None, 0.0}


def test_a_baseline_is_read_as_it_was_written() -> None:
    """The file holds all that a comparison needs, to the last digit."""
    run = summarize(make_windows(noisy_times(9, 40)))
    assert parse_baseline(write_baseline(run), "base.json") == run


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"{half", "is not JSON"),
        (b"[1]", "is no saved baseline: its schema_version is None"),
        (b'{"schema_version": "costlens.run/1"}', "schema_version is 'costlens.run/1'"),
        (b'{"schema_version": "costlens.baseline/1"}', "run_id is missing or wrong"),
        (b"[" * 100_000, "is not JSON"),
    ],
)
def test_what_is_no_baseline_is_refused(content: bytes, told: str) -> None:
    """The message names the file, what is wrong with it, and how one is made."""
    with pytest.raises(RecordError, match=r"base\.json") as caught:
        parse_baseline(content, "base.json")
    assert told in str(caught.value)


@given(
    st.sampled_from(["num_windows", "num_attempts", "samples_per_step", "figures", "outcome"]),
    st.sampled_from([-1, 1e400, 2**70, "1", None, [], {}, "\ud800", {"step_s": {"value": -1}}]),
)
def test_a_broken_baseline_is_refused_or_read(field: str, value: object) -> None:
    """Whatever stands in a field, there is a baseline or an error that says which field."""
    document = json.loads(write_baseline(summarize(make_windows(noisy_times(9, 10)))))
    document[field] = value
    try:
        parse_baseline(json.dumps(document).encode(), "base.json")
    except RecordError as error:
        assert "base.json" in str(error)  # noqa: PT017 - either outcome is right
