"""Two runs compared: what differs, by how much, and what is noise."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costlens.account.comparison import FALSE_ALARM_RATE, compare_runs
from costlens.account.noise import Pair, estimate_ratio
from costlens.core.comparison_records import (
    ComparedFigure,
    Comparison,
    FigurePart,
    FindingSeen,
    RunSummary,
)
from costlens.core.training_records import RatesPart
from tests.unit.account.build import make_price
from tests.unit.account.runs import make_windows, noisy_times, summarize


def figures_of(comparison: Comparison) -> dict[str, ComparedFigure]:
    """Return figures and phases by name."""
    return {each.name: each for each in [*comparison.figures, *comparison.phases]}


def make_run(seed: int = 1, num: int = 60, **options: Any) -> RunSummary:
    """Return a run of noisy windows."""
    run = options.pop("run", {})
    return summarize(make_windows(noisy_times(seed, num, **options)), run=run)


@given(
    st.lists(st.floats(1e-4, 100.0), min_size=1, max_size=60),
    st.floats(0.0, 1e4),
)
def test_a_run_is_like_itself(step_times_s: list[float], startup_s: float) -> None:
    """Whatever its noise and its length, nothing of it is better or worse than the same run."""
    run = summarize(make_windows(step_times_s, startup_s=startup_s))
    comparison = compare_runs(run, run, fail_above=0.0)
    for figure in figures_of(comparison).values():
        assert figure.verdict in {"within_noise", "unknown"}, figure
        assert figure.change in {None, 0.0}
    assert not comparison.too_bad
    assert comparison.notes[-1] == "A and B are the same run"


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.floats(0.3, 3.0).filter(lambda factor: abs(factor - 1) > 0.1))
def test_a_change_is_found_with_its_sign_and_size(seed: int, factor: float) -> None:
    """Steps that take longer are worse, fewer tokens a second and more money, by the same share."""
    times_s = noisy_times(seed, 40, share=0.02)
    before = summarize(make_windows(times_s, startup_s=1.0))
    after = summarize(make_windows([s * factor for s in times_s], startup_s=1.0))
    found = figures_of(compare_runs(before, after))
    slower = "worse" if factor > 1 else "better"
    for name in ("step_s", "tokens_per_s", "samples_per_s", "compute", "data_wait"):
        assert found[name].verdict == slower, name
    for name in ("step_s", "compute", "data_wait"):
        assert found[name].change == pytest.approx(factor - 1, rel=1e-6)
    assert found["tokens_per_s"].change == pytest.approx(1 / factor - 1, rel=1e-6)
    money = found["cost_per_million_tokens"]
    assert money.verdict == slower
    assert money.change == pytest.approx(factor - 1, rel=0.05)
    # Start-up weighs less in a longer run, which is no matter of training.
    assert found["goodput"].verdict in {"within_noise", "unknown"}


def sample_run(template: RunSummary, seed: int, num: int, memory: float) -> RunSummary:
    """Return a run whose figures and phases have the noise of windows that lean on one another."""
    times = noisy_times(seed, num, memory=memory)
    waits = noisy_times(seed + 1_000_000, num, memory=memory, share=0.2)
    pairs: dict[str, list[Pair]] = {
        "step_s": [(time_s, 1.0) for time_s in times],
        "tokens_per_s": [(1000.0, time_s) for time_s in times],
        "cost_per_million_tokens": [
            (time_s + wait_s, 1.0) for time_s, wait_s in zip(times, waits, strict=True)
        ],
        "goodput": [(time_s, time_s + wait_s) for time_s, wait_s in zip(times, waits, strict=True)],
    }
    phases = {"compute": pairs["step_s"], "data_wait": [(wait_s, 1.0) for wait_s in waits]}
    return template.model_copy(
        update={
            "run_id": str(seed),
            "figures": {name: estimated(pairs[name]) for name in pairs},
            "phases": {name: estimated(phases[name]) for name in phases},
        }
    )


def estimated(pairs: list[Pair]) -> FigurePart:
    """Return a figure that is all steady."""
    steady = estimate_ratio(pairs)
    assert steady is not None
    return FigurePart(value=steady.value, steady=steady)


@pytest.mark.parametrize(
    ("num", "memory"),
    [*((num, memory) for num in (9, 20, 60, 240) for memory in (0.0, 0.5)), (240, 0.8), (240, 0.9)],
)
def test_noise_makes_no_false_alarm_beyond_the_stated_rate(num: int, memory: float) -> None:
    """Of 400 pairs of like runs, no more than chance allows have a figure better or worse.

    Also where windows lean on one another, as they do while a machine is shared: by half of what
    they are in runs of any length, by nine tenths where an hour of them tells. 400 pairs at 1 %
    have more than 10 alarms once in 350 times.
    """
    template = make_run(1, 12)
    alarms = {"figures": 0, "phases": 0}
    for pair in range(400):
        a, b = (sample_run(template, 2 * pair + side, num, memory) for side in (0, 1))
        comparison = compare_runs(a, b)
        for family, listed in (("figures", comparison.figures), ("phases", comparison.phases)):
            assert len(listed) >= 2
            alarms[family] += any(each.verdict in {"better", "worse"} for each in listed)
    assert max(alarms.values()) <= FALSE_ALARM_RATE * 400 + 6, alarms


def test_noise_hides_no_change_that_matters() -> None:
    """Of 100 runs that are 5 % slower, at 3 % of noise, an hour of windows finds all but a few."""
    template, num_found = make_run(1, 12), 0
    for pair in range(100):
        before = sample_run(template, 2 * pair, 360, 0.3)
        times = noisy_times(2 * pair + 1, 360, mean_s=0.105, memory=0.3)
        slower = {"step_s": estimated([(time_s, 1.0) for time_s in times])}
        after = before.model_copy(update={"figures": {**before.figures, **slower}})
        num_found += figures_of(compare_runs(before, after))["step_s"].verdict == "worse"
    assert num_found >= 97


def test_warm_up_is_no_speed_but_is_money() -> None:
    """C009: a slow start-up and slow first windows leave the time of a step alone, not the bill."""
    steady = noisy_times(3, 60, share=0.01)
    quick = summarize(make_windows(steady, startup_s=1.0))
    slow = summarize(make_windows([0.4, 0.3, 0.2, *steady[3:]], startup_s=120.0))
    found = figures_of(compare_runs(quick, slow))
    assert slow.num_startup_windows == 1
    assert slow.num_warmup_windows == 2
    assert found["step_s"].verdict == "within_noise"
    assert found["step_s"].change == pytest.approx(0, abs=0.01)
    money = found["cost_per_million_tokens"]
    assert money.change is not None
    assert money.change > 0.2
    assert (money.verdict, money.reason) == (
        "unknown",
        "start-up, restores or lost work changed it, and happen once a run",
    )


def test_evaluation_costs_money_and_goodput_and_no_speed() -> None:
    """What repeats between steps is in the bill, with its noise, and in no time of a step's own."""
    times_s = noisy_times(4, 60, share=0.01)
    before = summarize(make_windows(times_s))
    after = summarize(make_windows(times_s, evaluation_s=3.0))
    found = figures_of(compare_runs(before, after))
    assert found["step_s"].verdict == "within_noise"
    assert found["validation"].verdict == "worse"
    assert found["validation"].change is None  # there was none before
    assert found["cost_per_million_tokens"].verdict == "worse"
    assert found["goodput"].verdict == "worse"


def test_other_currencies_are_not_compared() -> None:
    """C111: euros are neither more nor less than dollars; time is compared all the same."""
    times_s = noisy_times(5, 40)
    dollars = summarize(make_windows(times_s))
    euros = summarize(make_windows(times_s), price=make_price("3600", currency="EUR"))
    found = figures_of(compare_runs(dollars, euros))
    assert found["cost_per_million_tokens"].verdict == "not_comparable"
    assert found["cost_per_million_tokens"].reason == "money in USD and in EUR is not compared"
    for name in ("cost_per_million_tokens", "cost_per_million_productive_tokens"):
        assert found[name].a.exact == found[name].b.exact, "the numbers are the same by chance"
        assert (found[name].change, found[name].margin) == (None, None)
    assert found["step_s"].change == 0.0
    assert found["step_s"].verdict == "within_noise"


def test_tokens_with_and_without_padding_are_not_compared() -> None:
    """C109: a position with padding is another thing than a token."""
    run = make_run()
    padded = run.model_copy(update={"token_basis": "slots"})
    found = figures_of(compare_runs(run, padded))
    money = found["cost_per_million_productive_tokens"]
    assert money.verdict == "not_comparable"
    assert money.reason == "another basis: tokens without padding and positions with padding"


@pytest.mark.parametrize(
    ("name", "figure", "reason"),
    [
        ("model", "step_s", "another model: old and new"),
        ("model", "cost_per_million_tokens", "another model: old and new"),
        ("dataset_version", "tokens_per_s", "another dataset version: old and new"),
        ("hardware", "compute", "another hardware: old and new"),
    ],
)
def test_another_setting_is_said(name: str, figure: str, reason: str) -> None:
    """What runs did or ran on decides what their figures mean; the numbers are shown anyway."""
    run = make_run()
    a = run.model_copy(update={"setting": {**run.setting, name: "old"}})
    b = run.model_copy(update={"setting": {**run.setting, name: "new"}})
    comparison = compare_runs(a, b)
    assert comparison.differences == {name: ("old", "new")}
    found = figures_of(comparison)[figure]
    assert (found.verdict, found.reason, found.change) == ("not_comparable", reason, 0.0)


def test_money_is_compared_over_hardware() -> None:
    """Which machine is cheaper is what money answers."""
    run = make_run()
    other = run.model_copy(update={"setting": {**run.setting, "hardware": "NVIDIA H100"}})
    found = figures_of(compare_runs(run, other))
    assert found["cost_per_million_tokens"].verdict == "within_noise"
    assert found["goodput"].verdict == "within_noise"


def test_what_only_one_run_tells_is_no_difference() -> None:
    """A model that nobody named may be the same."""
    run = make_run()
    named = run.model_copy(update={"setting": {**run.setting, "model": "gpt"}})
    comparison = compare_runs(run, named)
    assert comparison.differences == {"model": (None, "gpt")}
    assert figures_of(comparison)["step_s"].verdict == "within_noise"


def test_another_batch_size_makes_another_step() -> None:
    """Twice the samples take longer a step: only rates and money can be compared then."""
    run = make_run()
    doubled = run.model_copy(update={"samples_per_step": 8.0})
    found = figures_of(compare_runs(run, doubled))
    assert found["step_s"].reason == "another number of samples a step: 4 and 8"
    assert found["compute"].verdict == "not_comparable"
    assert found["tokens_per_s"].verdict == "within_noise"


def test_an_unknown_price_is_no_money_and_no_zero() -> None:
    """C106: figures of money are unknown, with the reason, and not judged."""
    times_s = noisy_times(6, 40)
    free = summarize(make_windows(times_s), price=None, price_unknown="no price: set it")
    priced = summarize(make_windows(times_s))
    money = figures_of(compare_runs(priced, free, fail_above=0.0))["cost_per_million_tokens"]
    assert (money.b.value, money.change, money.verdict) == (None, None, "unknown")
    assert money.reason == "B: no price: set it"
    assert not money.is_judged


def test_no_tokens_and_no_time_make_no_number() -> None:
    """C108: where nothing was counted there is no ratio, and nothing is infinite."""
    windows = make_windows(noisy_times(7, 20))
    none = [w.model_copy(update={"counts": {**w.counts, "tokens": 0}}) for w in windows]
    run = summarize(none, rates=RatesPart(iterations_per_s=10.0, steps_per_s=10.0))
    found = figures_of(compare_runs(run, run))
    assert found["cost_per_million_tokens"].verdict == "unknown"
    assert found["cost_per_million_tokens"].reason == "A: no token was counted"
    assert "tokens_per_s" not in found
    assert found["step_s"].verdict == "within_noise"


def test_too_bad_is_worse_than_allowed_and_beyond_noise() -> None:
    """5 % are allowed: 20 % slower is refused, 2 % is not, and noise that looks like 6 % is not."""
    quiet = make_run(1, 60, share=0.01)
    slower = make_run(2, 60, share=0.01, mean_s=0.12)
    little = make_run(3, 60, share=0.01, mean_s=0.102)
    assert "step_s" in compare_runs(quiet, slower, fail_above=0.05).too_bad
    assert compare_runs(quiet, little, fail_above=0.05).too_bad == []
    assert compare_runs(slower, quiet, fail_above=0.05).too_bad == []
    noisy = make_run(4, 12, share=0.3)
    other = make_run(5, 12, share=0.3, mean_s=0.106)
    assert compare_runs(noisy, other, fail_above=0.05).too_bad == []


def test_noise_that_is_not_known_excuses_nothing() -> None:
    """A run of a few windows is judged by its numbers alone, and the reason says so."""
    short = make_run(1, 4)
    slower = make_run(1, 4, mean_s=0.2)
    comparison = compare_runs(short, slower, fail_above=0.05)
    step = figures_of(comparison)["step_s"]
    assert step.verdict == "unknown"
    assert step.reason == "noise is not known: a run has fewer than 8 windows"
    assert step.is_judged
    assert "step_s" in comparison.too_bad
    assert any("do not tell its noise" in note for note in comparison.notes)


def test_a_live_run_is_said_to_be_one() -> None:
    """Its figures may change still."""
    windows = make_windows(noisy_times(8, 20))
    live = summarize(windows, outcome="running", heartbeat_time=1_760_999_990.0)
    notes = compare_runs(live, summarize(windows)).notes
    assert "A: it is still running: these are its figures so far" in notes


def test_findings_come_stay_and_go() -> None:
    """A cause that is there in one run only is new or gone."""
    run = make_run()

    def having(*names: str, undecided: tuple[str, ...] = ()) -> RunSummary:
        seen = [FindingSeen(name=name, severity="warning") for name in names]
        return run.model_copy(update={"findings": seen, "undecided": [*undecided]})

    found = compare_runs(having("data_wait", "straggler"), having("straggler", "transfer"))
    assert [(each.name, each.change) for each in found.findings] == [
        ("transfer", "new"),
        ("straggler", "stays"),
        ("data_wait", "gone"),
    ]
    # What a run cannot tell is not gone, nor is it new.
    blind = having(undecided=("throttling",))
    for pair in ((having("throttling"), blind), (blind, having("throttling"))):
        assert [each.change for each in compare_runs(*pair).findings] == ["undecided"]
