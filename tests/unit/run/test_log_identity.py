"""Whose a line of the log is, where one process has several runs, one after another or at once."""

from __future__ import annotations

import gc
import json
import math
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from costlens.config import Config
from costlens.core.log import log
from costlens.core.recorder import UNKNOWN, Recorder
from costlens.run import Run
from costlens.testing import MemoryExporter

Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Lines:
    """Return a function that returns the events on standard error since it was called last."""
    return lambda: [json.loads(line) for line in capsys.readouterr().err.splitlines()]


@contextmanager
def opened(name: str) -> Iterator[Run]:
    """Open a run that writes no files, and finish it."""
    with Run(Config(name=name, summary=False), exporters=[MemoryExporter()]) as run:
        yield run


def test_two_open_runs_keep_their_own_lines(lines: Lines) -> None:
    """C126: a NaN in the first of two open runs is told of the first, at its own iteration."""
    with opened("first") as first, opened("second") as second:
        ids = first.id, second.id
        for run, losses in ((first, (1.0, 2.0, math.nan)), (second, (1.0,))):
            for loss in losses:
                with run.iteration() as iteration:
                    iteration.log(loss=loss)
        second.finish()
        first.finish()
    assert ids[0] != ids[1]
    (line,) = lines()
    assert (line["event"], line["run_id"]) == ("costlens.nonfinite", ids[0])
    assert (line["iteration"], line["attempt"], line["rank"]) == (2, 1, 0)


def test_lines_that_are_nobodys_name_a_run_only_while_there_is_one(lines: Lines) -> None:
    """Nobody's line is the open run's; it names none of two, and none after the end."""
    with opened("first") as first:
        first_id = first.id
        log.warning("one")
        with opened("second"):
            log.warning("two")
        log.warning("one")
    log.warning("none")
    told = lines()
    assert [line.get("run_id") for line in told] == [first_id, None, first_id, None]
    assert "rank" not in told[-1]
    assert "step" not in told[-1]


def test_a_line_says_the_optimizer_step_and_beside_it_the_iteration(lines: Lines) -> None:
    """`step` counts updates, on the run's own scale where the loop knows it."""
    with opened("accumulates") as run:
        for _ in range(8):
            with run.iteration():
                pass
        run.parts.recorder.counters.optimizer_steps = UNKNOWN
        log.warning("unwatched")
        run.parts.recorder.counters.optimizer_steps = 2
        log.warning("fresh")
        run.parts.state.start_step = 40
        log.warning("resumed")
        run.parts.state.end_step = 50
        log.warning("told")
    told = lines()
    assert [line.get("step") for line in told] == [None, 2, 42, 50]
    assert {line["iteration"] for line in told} == {8}


def test_a_run_that_goes_on_has_its_name_again(lines: Lines) -> None:
    """A second fit's lines are those of the run, and no longer after it."""
    with opened("twice") as run:
        run_id = run.id
    with run:
        log.warning("again")
    log.warning("none")
    assert [line.get("run_id") for line in lines()] == [run_id, None]


def test_the_log_keeps_no_finished_run_alive() -> None:
    """What the log asked for the step goes with the run."""

    def train() -> weakref.ref[Recorder]:
        with opened("gone") as run, run.iteration():
            pass
        return weakref.ref(run.parts.recorder)

    kept = train()
    gc.collect()
    assert kept() is None
