"""Totals: what the pipeline thread adds up from rows."""

from __future__ import annotations

import pytest

from costlens.core.clock import NS_PER_S
from costlens.core.phases import NUM_PHASES, Phase
from costlens.core.recorder import Recorder
from costlens.core.timeline import Timeline
from costlens.core.window import KeepPolicy, Totals, iteration_ns
from costlens.testing import FakeClock

MS = 1_000_000


class Loop:
    """A loop on a clock of its own, whose rows are totalled when the test says so."""

    def __init__(self, capacity: int = 1024) -> None:
        self.clock = FakeClock()
        self.timeline = Timeline(self.clock, 0)
        self.recorder = Recorder(self.timeline, capacity)
        self.recorder.counters.watch_steps()
        self.totals = Totals(KeepPolicy(every=1000))

    def iterate(self, duration_ns: int, *, tokens: int = 0, save_ns: int = 0) -> None:
        """Make one iteration."""
        self.timeline.enter(Phase.COMPUTE)
        self.clock.advance_ns(duration_ns)
        self.timeline.leave()
        self.timeline.enter(Phase.CHECKPOINT)
        self.clock.advance_ns(save_ns)
        self.timeline.leave()
        self.recorder.counters.micro_batches += 1
        self.recorder.counters.add_tokens(tokens)
        self.recorder.cut()

    def drain(self) -> Totals:
        """Total what was cut."""
        for row in self.recorder.drain(10**6):
            self.totals.add(row)
        return self.totals


def test_the_first_iteration_counts_in_no_rate() -> None:
    """C009: after a 2 s first step, 50 steps of 10 ms have a median of 10 ms and 100 a second."""
    loop = Loop()
    loop.iterate(2 * NS_PER_S, tokens=100)
    for _ in range(50):
        loop.iterate(10 * MS, tokens=100)
    totals = loop.drain()
    counts, trained_ns = totals.count_trained()
    assert (counts["iterations"], counts["tokens"], trained_ns) == (50, 5000, NS_PER_S // 2)
    assert totals.sketch.quantile_ns(0.5) == pytest.approx(10 * MS, rel=0.01)
    assert loop.timeline.phase_ns[Phase.STARTUP] == 2 * NS_PER_S


def test_saves_do_not_slow_the_training_down() -> None:
    """A save inside an iteration is no part of its duration."""
    loop = Loop()
    for _ in range(5):
        loop.iterate(10, save_ns=10_000)
    totals = loop.drain()
    assert totals.take_durations() == (4, 40, 10)


def test_a_window_takes_its_durations_once() -> None:
    """What one window has taken the next one does not see."""
    loop = Loop()
    for duration_ns in (1, 20, 30):
        loop.iterate(duration_ns)
    assert loop.drain().take_durations() == (2, 50, 30)
    loop.iterate(7)
    assert loop.drain().take_durations() == (1, 7, 7)
    assert loop.totals.take_durations() == (0, 0, 0)


def test_dropped_rows_lose_detail_but_neither_number_nor_time() -> None:
    """Rates after an overflow of the ring are those of all iterations."""
    loop = Loop(capacity=8)
    for number in range(101):
        loop.iterate(11 if number in {50, 99} else 10, tokens=3)
    totals = loop.drain()
    assert loop.recorder.num_dropped > 80
    counts, trained_ns = totals.count_trained()
    assert (counts["iterations"], counts["tokens"], trained_ns) == (100, 300, 1002)
    assert (totals.histogram.count, totals.histogram.sum_ns) == (100, 1002)
    assert totals.sketch.count == 100
    assert totals.take_durations() == (100, 1002, 11)
    assert [kept.reason for kept in totals.take_kept()] == ["first"], "a gap is no slow iteration"


def test_a_run_that_starts_again_keeps_its_rates() -> None:
    """C113: the idle time and the start-up between two fits are in no duration and in no rate."""
    loop = Loop()
    for _ in range(3):
        loop.iterate(10, tokens=5)
    loop.drain()
    loop.clock.advance_ns(77)  # after the last iteration: the end of the first fit
    loop.totals.close(loop.timeline.read().until(loop.clock()))
    loop.timeline.rebase(Phase.IDLE)
    loop.clock.advance_ns(10_000)
    loop.timeline.rebase(Phase.STARTUP)
    loop.clock.advance_ns(500)
    for _ in range(3):
        loop.iterate(10, tokens=5)
    counts, trained_ns = loop.drain().count_trained()
    assert (counts["iterations"], counts["tokens"], trained_ns) == (4, 20, 40)
    assert loop.totals.histogram.count == 4


def test_a_set_up_that_ends_before_the_first_batch_makes_no_start_up_iteration() -> None:
    """Where the doorway ends a later start-up itself, the next iteration is an ordinary one."""
    loop = Loop()
    for _ in range(2):
        loop.iterate(10)
    loop.clock.advance_ns(33)  # the end of the first fit
    loop.drain().close(loop.timeline.read().until(loop.clock()))
    loop.timeline.rebase(Phase.STARTUP)
    loop.clock.advance_ns(500)
    loop.timeline.rebase(Phase.OTHER)
    loop.iterate(10)
    assert loop.drain().take_durations() == (2, 20, 10)


def test_late_counts_join_the_others() -> None:
    """Tokens summed on a device count in totals and, after start-up, in rates."""
    loop = Loop()
    for _ in range(3):
        loop.iterate(10)
    totals = loop.drain()
    for number in range(3):
        totals.add_late("loss_tokens", number, 100)
    assert totals.late_counts == {"loss_tokens": 300}
    assert totals.count_trained()[0]["loss_tokens"] == 200


def test_a_counter_nobody_reports_is_in_no_session() -> None:
    """Unknown is absent, not zero."""
    loop = Loop()
    for _ in range(3):
        loop.iterate(10)
    counts, _ = loop.drain().count_trained()
    assert "samples" not in counts
    assert counts["optimizer_steps"] == 0


def test_nothing_was_counted_before_the_first_row() -> None:
    """An attempt without a row has neither counts nor time."""
    assert Totals().count_trained() == ({}, 0)


def test_without_a_device_the_host_is_right() -> None:
    """On a CPU host phases are booked and settled as they are."""
    host = tuple(range(NUM_PHASES))
    totals = Totals()
    assert totals.book(host) == totals.settle(host) == host
    assert iteration_ns(host) == sum(host) - sum(
        host[phase]
        for phase in (
            Phase.STARTUP,
            Phase.RESTORE,
            Phase.CHECKPOINT,
            Phase.VALIDATION,
            Phase.IDLE,
            Phase.IDLE_DEVICE,
            Phase.SHUTDOWN,
        )
    )
