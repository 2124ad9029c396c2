"""Two runs side by side, as people see them."""

from __future__ import annotations

import io

from rich.console import Console

from costlens.account.comparison import compare_runs
from costlens.core.comparison_records import FindingSeen, RunSummary
from costlens.export.console_compare import render_comparison
from tests.unit.account.build import make_price
from tests.unit.account.runs import make_windows, noisy_times, summarize


def show(a: RunSummary, b: RunSummary, width: int = 80, fail_above: float | None = None) -> str:
    """Return what a terminal of so many columns shows."""
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    render_comparison(compare_runs(a, b, fail_above=fail_above), console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def make_run(seed: int, mean_s: float = 0.1) -> RunSummary:
    """Return a run of 40 windows."""
    return summarize(make_windows(noisy_times(seed, 40, mean_s=mean_s, share=0.01)))


def test_eighty_columns_hold_every_figure_whole() -> None:
    """Values with their noise, the change and the verdict stand in one line, none cut."""
    page = show(make_run(1), make_run(2, 0.12), fail_above=0.05)
    lines = {line.strip()[:13]: line.split() for line in page.splitlines()}
    step = lines["time per step"]
    assert step[3] in {"100", "99.9"}
    assert step[5].startswith("±")
    assert step[-1] == "refused"
    assert "USD/M productive tokens" in page
    assert "…" not in page
    assert max(map(len, page.splitlines())) <= 80


def test_a_reason_is_told_once_for_all_that_it_holds_for() -> None:
    """What is not comparable keeps its numbers, and says why below the table."""
    run = make_run(1)
    other = run.model_copy(update={"setting": {**run.setting, "hardware": "NVIDIA H100"}})
    page = show(run, other, width=160)
    assert "hardware  cpu → NVIDIA H100" in page
    reason = "• time per step, tokens/s, samples/s: another hardware: cpu and NVIDIA H100"
    assert page.count(reason) == 1
    assert page.count("not comparable") == 5


def test_findings_are_listed_with_their_money() -> None:
    """A new one and one that is gone."""
    run = make_run(1)
    starved = FindingSeen(name="data_wait", severity="warning", money_per_hour="1.25")
    page = show(run, run.model_copy(update={"findings": [starved]}), width=120)
    assert "new  data_wait  – → 1.25 an hour" in page


def test_two_currencies_stand_beside_their_amounts() -> None:
    """C111: neither heads the row of both, and nothing leads from one to the other."""
    windows = make_windows(noisy_times(1, 40, share=0.01))
    dollars, euros = (
        summarize(windows, price=make_price("3600", currency=each)) for each in ("USD", "EUR")
    )
    starved = FindingSeen(name="data_wait", severity="warning", money_per_hour="1.25")
    found = {"findings": [starved]}
    page = show(dollars.model_copy(update=found), euros.model_copy(update=found))
    line = next(line for line in page.splitlines() if "/M productive tokens" in line).split()
    assert line[:3] == ["/M", "productive", "tokens"]
    assert [word for word in line if word in {"USD", "EUR"}] == ["USD", "EUR"]
    assert line[-3:] == ["–", "not", "comparable"]
    assert "…" not in page
    assert "stays  data_wait  1.25 USD → 1.25 EUR an hour" in page
    assert "money in USD and in EUR is not compared" in page


def test_names_from_outside_cannot_move_the_cursor() -> None:
    """A run's name, a setting or a finding may hold anything."""
    evil = "\x1b[2J\u202e"
    run = make_run(1)
    hostile = run.model_copy(
        update={
            "run_id": evil,
            "setting": {evil: evil},
            "currency": evil,
            "findings": [FindingSeen(name=evil, severity="warning", money_per_hour=None)],
            "notes": [evil],
        }
    )
    page = show(hostile, run, width=160)
    assert "\x1b" not in page
    assert "\u202e" not in page
