"""`costlens report --watch`: again and again until the run has ended."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from costlens.account.ledger import merge
from costlens.cli.watch import follow, show_live
from costlens.core.run_record import RunRecord
from tests.unit.account.build import START, make_record
from tests.unit.cli.conftest import Cli

NOW = START + 20


def _state(outcome: str, seconds: float) -> RunRecord:
    record = make_record(
        outcome=outcome, heartbeat_time=START + seconds, time_s={"compute": seconds}
    )
    return merge([record], now=NOW)


def _states() -> Iterator[RunRecord]:
    yield _state("running", 5.0)
    yield _state("running", 5.0)
    yield _state("running", 15.0)
    yield _state("failed", 16.0)
    raise AssertionError("the run had ended")


def test_each_change_is_shown_once_until_the_end() -> None:
    """What is as it was is not shown again; the last look is shown."""
    states, shown = _states(), []
    follow(lambda: next(states), shown.append, every_s=0.001)
    assert [record.time_s["compute"] for record in shown] == [5.0, 15.0, 16.0]


def test_ctrl_c_ends_it_quietly() -> None:
    """It is the way to leave."""

    def read() -> RunRecord:
        raise KeyboardInterrupt

    follow(read, print)


def test_without_a_terminal_whole_pages_follow_one_another() -> None:
    """In a pipe or a log there is nothing to draw over."""
    states = _states()
    console = Console(file=io.StringIO(), width=80, color_system=None)
    show_live(lambda: next(states), console, every_s=0.001)
    page = console.file.getvalue()  # type: ignore[attr-defined]
    assert page.count("Where the time went") == 3
    assert "\x1b" not in page


def test_on_a_terminal_the_page_is_drawn_over_and_the_last_one_stays() -> None:
    """Each look is drawn, for ages go on; the end of the run is the end of it."""
    states = _states()
    console = Console(file=io.StringIO(), width=80, height=50, force_terminal=True)
    show_live(lambda: next(states), console, every_s=0.001)
    drawn = console.file.getvalue()  # type: ignore[attr-defined]
    assert drawn.count("Where the time went") >= 4
    assert "\x1b[1A" in drawn, "the cursor goes back up"
    assert drawn.rindex("failed") > drawn.rindex("running")


def test_the_option_ends_with_a_run_that_has_ended(cli: Cli, run_dir: Path) -> None:
    """A finished run is shown once; with `--json` as one line."""
    code, out, _ = cli("report", "beta", "--watch")
    assert (code, out.count("Where the time went")) == (0, 1)
    code, out, _ = cli("report", "beta", "--watch", "--json")
    (line,) = out.splitlines()
    assert (code, json.loads(line)["run"]["name"]) == (0, "beta")
