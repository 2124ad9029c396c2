"""The page of a run that does not move, and of one that ended badly."""

from __future__ import annotations

import io

from rich.console import Console

from costlens.account.ledger import merge
from costlens.core.trouble_records import LastWordsPart
from costlens.export.console import render
from tests.unit.account.build import START, make_record


def _page(*records, now: float = START + 100) -> str:
    console = Console(file=io.StringIO(), width=80, color_system=None)
    render(merge(records, now=now), console, now=now)
    return console.file.getvalue()  # type: ignore[attr-defined]


def _stalled(rank: int, age_s: float, **more: object):
    stall = {
        "phase": "data_wait",
        "since": START,
        "age_s": age_s,
        "limit_s": 60.0,
        "stack": [f"loader.py:{number} fetch" for number in range(20)],
    }
    return make_record(
        1,
        rank,
        outcome="running",
        world_size=8,
        heartbeat_time=START + 99,
        open_phase="data_wait",
        open_phase_s=age_s,
        stall=stall,
        **more,
    )


def test_a_live_run_that_does_not_move_says_where_it_stands() -> None:
    """The rank, the phase, the age and the innermost frames."""
    page = _page(_stalled(0, 90.0))
    assert "rank 0 has not moved in data_wait for 90.0 s (limit 60.0 s)" in page
    assert "at loader.py:0 fetch" in page
    assert "in loader.py:4 fetch" in page
    assert "loader.py:5" not in page


def test_of_many_stalled_ranks_the_longest_come_first() -> None:
    """A thousand ranks that wait for one another are one line more, and one stack."""
    page = _page(*(_stalled(rank, 70.0 + rank) for rank in range(8)))
    stalled = [line for line in page.splitlines() if "has not moved" in line]
    assert [line.split()[1] for line in stalled] == ["7", "6", "5", "4"]
    assert "and 4 ranks more" in page
    assert page.count("at loader.py:0") == 1


def test_the_last_words_of_a_bad_end() -> None:
    """What ended it, with what code, where, and what came before."""
    words = LastWordsPart(
        error_type="RuntimeError",
        exit_code=1,
        stack=["torch/nn/linear.py:9 forward", "train.py:41 step"],
        oom_kills=2,
        nonfinite="loss",
        nonfinite_iteration=17,
        xid=79,
        flight_recorder="/scratch/trace_rank_0",
    )
    page = _page(make_record(outcome="failed", last_words=words))
    for line in (
        "RuntimeError · exit code 1",
        "2 out-of-memory kills in its cgroup since the start",
        "loss was not finite, first at iteration 17",
        "XID 79",
        "recorded in /scratch/trace_rank_0",
        "at torch/nn/linear.py:9 forward",
        "in train.py:41 step",
    ):
        assert line in page


def test_a_preempted_run_names_its_signal() -> None:
    """In the title, and in the words."""
    record = make_record(outcome="preempted", last_words=LastWordsPart(signal="SIGTERM"))
    attempt = record.attempt.model_copy(update={"signal": "SIGTERM"})
    page = _page(record.model_copy(update={"attempt": attempt}))
    assert "preempted (SIGTERM)" in page.splitlines()[0]
    assert "Last words" in page


def test_a_good_end_has_no_last_words() -> None:
    """Nothing is said where nothing went wrong, and an empty section is none."""
    assert "Last words" not in _page(make_record(outcome="completed"))
    assert "Last words" not in _page(make_record(outcome="failed", last_words=LastWordsPart()))
