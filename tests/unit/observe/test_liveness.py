"""Stalls of a run on a fake clock: what is told, and what the record shows."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from costlens.config import resolve_config
from costlens.core.phases import Phase
from costlens.observe.liveness import Liveness
from costlens.run import Run
from costlens.testing import FakeClock, MemoryExporter


class Watched:
    """A run whose thread is looked at once a second of its fake clock."""

    def __init__(self) -> None:
        self.clock = FakeClock(10**12)
        config = resolve_config(summary=False, window_s=3600)
        self.run = Run(config, clock=self.clock, exporters=[MemoryExporter()]).open()
        parts = self.run.parts
        self.state = parts.state
        self.liveness = Liveness(parts.recorder, parts.totals, parts.state, self.clock)
        self.liveness.begin()

    def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.advance(1)
            self.liveness.look()


@pytest.fixture
def watched() -> Iterator[Watched]:
    """Return an open run that has made its first iteration."""
    watched = Watched()
    with watched.run.iteration():
        pass
    yield watched
    watched.run.finish()


def _events(capsys: pytest.CaptureFixture[str]) -> list[dict]:
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    return [line for line in lines if line["event"] in {"costlens.stalled", "costlens.recovered"}]


def test_a_stall_and_its_end_are_told_with_phase_age_step_and_place(
    watched: Watched, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two lines at 60 s and 120 s with the thread's stack, and one when it moves again."""
    with watched.run.phase("data_wait"):
        watched.pass_time(130)
    watched.pass_time(1)
    first, second, over = _events(capsys)
    assert (first["event"], first["level"]) == ("costlens.stalled", "warning")
    assert (first["phase"], first["age_s"], second["age_s"]) == ("data_wait", 60.0, 120.0)
    assert first["iteration"] == 1
    assert any("test_liveness.py:" in place for place in first["stack"])
    assert len(first["stack"]) <= 40
    assert (over["event"], over["level"]) == ("costlens.recovered", "info")
    assert (over["phase"], over["age_s"]) == ("data_wait", 130.0)


def test_the_record_shows_the_stall_while_it_lasts(watched: Watched) -> None:
    """Since when, how old as of the newest look, and the innermost frames."""
    with watched.run.phase("data_wait"):
        since = watched.state.anchor.to_wall_ns(watched.clock()) / 1e9
        watched.pass_time(59)
        assert watched.state.stall is None
        watched.pass_time(21)
        stall = watched.state.stall
        assert stall is not None
        assert (stall.phase, stall.age_s, stall.limit_s) == ("data_wait", 80.0, 60.0)
        assert stall.since == pytest.approx(since, abs=0.001)
        assert 0 < len(stall.stack) <= 12
    watched.pass_time(1)
    assert watched.state.stall is None


def test_a_slow_loop_is_judged_by_its_own_median(watched: Watched) -> None:
    """Iterations of 20 s may take 200 s before anybody worries."""
    for _ in range(5):
        watched.clock.advance(20)
        with watched.run.iteration():
            pass
    watched.run.parts.totals.sketch.add(20 * 10**9, 5)
    watched.pass_time(190)
    assert watched.state.stall is None
    watched.pass_time(15)
    assert watched.state.stall is not None
    assert watched.state.stall.limit_s == pytest.approx(200, rel=0.02)


def test_a_run_that_has_ended_does_not_stall(
    watched: Watched, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever finishes a run and goes on with something else owes it nothing."""
    watched.run.finish()
    watched.pass_time(300)
    assert _events(capsys) == []


def test_time_before_the_run_goes_on_does_not_count(watched: Watched) -> None:
    """Between two fits an hour may pass."""
    watched.run.finish()
    watched.clock.advance(3600)
    watched.run.open()
    watched.liveness.begin()
    watched.run.parts.timeline.rebase(Phase.OTHER)
    watched.pass_time(59)
    assert watched.state.stall is None
