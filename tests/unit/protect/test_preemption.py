"""The arithmetic of a grace: what is saved, what is not, and what the record says."""

from __future__ import annotations

import time
from typing import Any

import pytest

from costlens.core.attempt_state import AttemptState
from costlens.core.boundaries import Boundaries
from costlens.core.clock import NS_PER_S, Anchor
from costlens.core.phases import Phase
from costlens.core.recorder import Recorder
from costlens.core.records import RankPart, RunPart
from costlens.core.timeline import Timeline
from costlens.errors import CheckpointError
from costlens.protect.grace import Grace
from costlens.protect.manifest import Kind
from costlens.protect.notices import AwsNotices
from costlens.protect.preemption import Preemption
from costlens.testing import FakeClock
from tests.unit.protect.metadata_server import MetadataServer

GRACE_S = 30.0
RESERVE_S = 5.0  # 4 s for record and flush, 1 s for the interpreter


class Disk:
    """Saves in so many seconds of the clock; ``wait`` lets them pass."""

    def __init__(self, clock: FakeClock, state: AttemptState) -> None:
        self.clock = clock
        self.state = state
        self.write_s = 2.0
        self.estimate_s: float | None = None
        self.last_step: int | None = None
        self.agrees = False
        self.stamps: list[str] = []
        self.error: Exception | None = None
        self.kinds: list[Kind] = []
        self._left_s = 0.0
        self._step = 0

    def save(self, step: int, kind: Kind) -> bool:
        if self.error is not None:
            raise self.error
        if self._left_s > 0:
            return False
        self.kinds.append(kind)
        self.last_step = self._step = step
        self._left_s = self.write_s
        return True

    def save_together(self, step: int, kind: Kind, stamp: str) -> bool:
        self.stamps.append(stamp)
        return self.save(step, kind)

    def wait(self, timeout_s: float) -> bool:
        passed_s = min(timeout_s, self._left_s)
        self.clock.advance(passed_s)
        if self._left_s > 0:
            self._left_s -= passed_s
            if self._left_s <= 0:
                self.state.saved_step = self._step
        return self._left_s <= 0


class Bench:
    """A run of a fake clock that is asked to leave."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.state = AttemptState(
            run=RunPart(id="t", name="t", costlens_version="0"),
            rank=RankPart(rank=0, host_name="host", pid=1),
            anchor=Anchor(mono_ns=0, wall_ns=1_790_000_000 * NS_PER_S),
            start_ns=0,
        )
        self.timeline = Timeline(self.clock, 0)
        self.disk = Disk(self.clock, self.state)
        recorder = Recorder(self.timeline)
        self.boundaries = Boundaries(self.state, recorder.counters)
        self.preemption = Preemption(
            self.state,
            self.timeline,
            self.boundaries,
            self.clock,
            Grace(GRACE_S, 4.0, 143),
            self.disk,
        )

    def leave(self, step: int) -> Any:
        """Come to a boundary; return what the record says."""
        with pytest.raises(SystemExit) as caught:
            self.preemption.leave(step)
        assert caught.value.code == 143
        assert not self.preemption.is_asked
        assert self.timeline.depth == 0
        return self.state.preemption


@pytest.fixture(name="bench")
def _bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    # No handler is installed here: the signals are those of a process that would die of them.
    monkeypatch.setattr("costlens.protect.signals.is_deadly", lambda _: True)
    return Bench()


def test_nobody_asks_and_nothing_happens(bench: Bench) -> None:
    """A run that was not asked has its own time to end, and is spared nothing."""
    assert not bench.preemption.is_asked
    assert not bench.preemption.is_saving
    assert bench.preemption.end_timeout_s == 4.0


def test_the_step_is_saved_and_waited_for(bench: Bench) -> None:
    """Covered: the newest checkpoint holds every step; the wait is booked as a save."""
    bench.preemption.handle("SIGTERM")
    bench.clock.advance(3)
    assert bench.preemption.is_saving
    part = bench.leave(7)
    assert bench.disk.kinds == ["preemption"]
    assert (part.reason, part.step, part.is_covered) == ("SIGTERM", 7, True)
    assert (part.grace_s, part.time) == (GRACE_S, 1_790_000_000)
    assert bench.timeline.phase_ns[Phase.CHECKPOINT] == 2 * NS_PER_S


def test_a_step_that_is_being_written_is_not_saved_twice(bench: Bench) -> None:
    """The interval's save of the same step is waited for, and covers it."""
    bench.disk.save(7, "interval")
    bench.preemption.handle("SIGTERM")
    assert bench.leave(7).is_covered
    assert bench.disk.kinds == ["interval"]


def test_the_one_in_flight_goes_first(bench: Bench) -> None:
    """At most one is written at a time: the older becomes durable, then the new one."""
    bench.disk.save(5, "interval")
    bench.preemption.handle("SIGTERM")
    assert bench.leave(7).is_covered
    assert bench.disk.kinds == ["interval", "preemption"]


@pytest.mark.parametrize(("estimate_s", "is_saved"), [(22.0, True), (22.1, False)])
def test_a_save_that_does_not_fit_is_not_begun(
    bench: Bench, estimate_s: float, is_saved: bool
) -> None:
    """3 s are gone and 5 are kept for the end: 22 fit; else what is staged is flushed instead."""
    bench.disk.estimate_s = estimate_s
    bench.disk.save(5, "interval")
    bench.disk.wait(2.0)
    bench.clock.now_ns = 0
    bench.preemption.handle("SIGTERM")
    bench.clock.advance(3)
    part = bench.leave(7)
    assert part.is_covered is is_saved
    assert part.uncovered_because == (None if is_saved else "no_time")
    assert bench.state.saved_step == (7 if is_saved else 5)


def test_what_is_staged_is_flushed_where_nothing_else_fits(bench: Bench) -> None:
    """The newest whole snapshot becomes durable; the steps after it are lost, and said to be."""
    bench.disk.estimate_s = bench.disk.write_s = 20.0
    bench.disk.save(5, "interval")
    bench.preemption.handle("SIGTERM")
    part = bench.leave(7)
    assert (part.is_covered, part.uncovered_because) == (False, "no_time")
    assert bench.state.saved_step == 5
    assert bench.clock() == 20 * NS_PER_S


def test_a_save_that_is_too_slow_is_left_in_time_for_the_record(bench: Bench) -> None:
    """C065: nobody waits beyond the grace less what the end needs; the record says incomplete."""
    bench.disk.write_s = 100.0
    bench.preemption.handle("SIGTERM")
    part = bench.leave(7)
    assert (part.is_covered, part.uncovered_because) == (False, "save_incomplete")
    assert bench.clock() == (GRACE_S - RESERVE_S) * NS_PER_S
    assert bench.preemption.end_timeout_s == 4.0


def test_a_state_that_cannot_be_saved_is_told_and_written_down(bench: Bench) -> None:
    """The user asked for checkpoints: the error is loud, and the record not covered."""
    bench.disk.error = CheckpointError("no state")
    bench.preemption.handle("SIGTERM")
    with pytest.raises(CheckpointError):
        bench.preemption.leave(7)
    assert bench.state.preemption is not None
    assert not bench.state.preemption.is_covered


def test_the_echo_of_a_signal_is_not_a_second_one(bench: Bench) -> None:
    """Slurm signals every process, and a launcher hands its own on: that is one notice."""
    bench.preemption.handle("SIGTERM")
    bench.clock.advance(0.2)
    bench.preemption.handle("SIGTERM")
    assert bench.preemption.is_saving
    bench.clock.advance(0.3)
    bench.preemption.handle("SIGTERM")
    assert bench.preemption.has_given_up
    assert not bench.preemption.is_saving
    assert bench.preemption.end_timeout_s == 1.0


def test_a_handler_that_comes_late_counts_no_signal_twice(bench: Bench) -> None:
    """The listener hears at once; the main thread was stuck for 5 s and then runs its handler."""
    bench.preemption.hear("SIGTERM")
    bench.clock.advance(5)
    bench.preemption.handle("SIGTERM")
    assert not bench.preemption.has_given_up
    assert bench.leave(7).time == 1_790_000_000


def test_a_notice_has_its_own_time_and_a_signal_cuts_it(bench: Bench) -> None:
    """Two minutes of the cloud become the grace of the signal that follows, and no second one."""
    bench.preemption.warn("aws:terminate", 120.0)
    assert bench.preemption.left_s == 120 - RESERVE_S
    bench.clock.advance(10)
    bench.preemption.handle("SIGTERM")
    assert not bench.preemption.has_given_up
    assert bench.preemption.left_s == pytest.approx(GRACE_S - RESERVE_S)
    assert bench.leave(7).reason == "aws:terminate"


def test_where_the_user_handles_the_signal_the_loop_is_told(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C063: they decide how the process ends; the state is safe, and the training stops."""
    monkeypatch.setattr("costlens.protect.signals.is_deadly", lambda _: False)
    bench.preemption.handle("SIGTERM")
    bench.preemption.leave(7)
    assert bench.boundaries.should_stop
    assert bench.state.preemption is not None
    assert bench.state.preemption.is_covered


def test_an_evaluation_is_left_and_a_step_is_not(bench: Bench) -> None:
    """A fetch of the training is in the middle of something; one of an evaluation is not."""
    bench.preemption.handle("SIGTERM")
    bench.preemption.leave_evaluation(7)
    assert bench.disk.kinds == []
    bench.timeline.rebase(Phase.VALIDATION)
    with pytest.raises(SystemExit):
        bench.preemption.leave_evaluation(7)
    assert bench.disk.kinds == ["preemption"]


def test_a_notice_of_the_cloud_makes_the_next_step_the_last(bench: Bench) -> None:
    """No signal comes: the poller tells, the training saves and leaves, and the poller ends."""
    with MetadataServer() as server:
        server.action = {"action": "terminate", "time": "2026-09-21T14:15:20Z"}
        bench.preemption.listen_to(AwsNotices(server.url, lambda: 1_790_000_000.0))
        deadline_s = time.monotonic() + 20
        while not bench.preemption.is_asked:
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
        part = bench.leave(7)
        assert (part.reason, part.grace_s, part.is_covered) == ("aws:terminate", 120.0, True)
        bench.preemption.close()
