"""How the outcome follows from what ended a run."""

from __future__ import annotations

import sys

import pytest

from costlens.config import resolve_config
from costlens.core.phases import Phase
from costlens.protect.run_end import RunEnd
from costlens.run import Run
from costlens.testing import FakeClock, MemoryExporter


def _open() -> Run:
    config = resolve_config(summary=False, log_level="error")
    return Run(config, clock=FakeClock(), exporters=[MemoryExporter()]).open()


@pytest.fixture
def run():
    """Return an open run whose end is looked at from inside."""
    run = _open()
    yield run
    run.finish()


def _end(run: Run) -> RunEnd:
    assert run._session is not None
    return run._session.end


@pytest.mark.parametrize(
    ("said", "error", "signal", "outcome"),
    [
        (None, None, None, "completed"),
        (None, SystemExit(0), None, "completed"),
        (None, SystemExit(3), None, "failed"),
        (None, ValueError(), None, "failed"),
        (None, KeyboardInterrupt(), None, "interrupted"),
        (None, None, "SIGTERM", "preempted"),
        (None, ValueError(), "SIGTERM", "preempted"),
        (None, KeyboardInterrupt(), "SIGINT", "interrupted"),
        ("completed", None, "SIGTERM", "completed"),
        ("stopped_early", ValueError(), None, "stopped_early"),
    ],
)
def test_the_outcome_follows_unless_it_is_said(run, said, error, signal, outcome) -> None:
    """C063: after a notice the end is a preemption, whatever exception it brings."""
    if signal is not None:
        _end(run).note_signal(signal)
    record = run.finish(said, error=error)
    assert record.attempt.outcome.value == outcome
    assert record.attempt.signal == signal


def test_an_exit_code_is_known_from_the_exit_alone(run) -> None:
    """An error that passes through a `with` block may still be caught."""
    assert run.finish(error=ValueError()).attempt.exit_code is None
    run.open()
    assert run.finish(error=SystemExit(3)).attempt.exit_code == 3
    run.open()
    record = run.finish(error=SystemExit(0))
    assert (record.attempt.exit_code, record.attempt.error_type) == (0, None)


def test_a_run_that_goes_on_has_forgotten_its_end(run) -> None:
    """The second fit after a crash is neither failed nor preempted."""
    _end(run).note_signal("SIGTERM")
    assert run.finish(error=ValueError()).last_words is not None
    run.open()
    record = run.finish()
    assert record.attempt.outcome.value == "completed"
    assert (record.attempt.signal, record.attempt.error_type) == (None, None)
    assert record.last_words is None


def test_ending_from_a_handler_closes_the_timeline_and_waits_for_nothing(run) -> None:
    """The open phases are left, the rest is shutdown, and the pipeline is told."""
    end, timeline = _end(run), run.parts.timeline
    timeline.enter(Phase.VALIDATION)
    end.begin_end()
    assert (timeline.phase, timeline.depth) == (Phase.SHUTDOWN, 0)
    assert run.parts.state.outcome.value == "preempted"
    end.pipeline.thread.join(20)
    assert end.is_ended


def test_a_handler_in_the_middle_of_finish_changes_no_outcome(run) -> None:
    """The run had ended by itself: the signal came too late for that."""
    end = _end(run)
    end.settle("completed", None, None)
    end.begin_end()
    assert run.parts.state.outcome.value == "completed"


def test_errors_that_a_person_sees_end_nothing(monkeypatch) -> None:
    """In a notebook `sys.last_value` is whatever a cell raised."""
    monkeypatch.setattr("costlens.assembly.is_interactive", lambda: True)
    run = _open()
    monkeypatch.setattr(sys, "last_value", ValueError(), raising=False)
    run.close_at_exit()
    assert run.finish().attempt.outcome.value == "completed"
