"""The pipeline thread: drains, closes windows, ends; whatever its stages do."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable

import pytest

from costlens.core.clock import NS_PER_S, Clock
from costlens.core.guard import Faults
from costlens.core.pipeline import Pipeline
from costlens.core.recorder import Recorder
from costlens.core.timeline import Timeline
from costlens.core.window import Totals
from costlens.testing import FakeClock

WINDOW_NS = 10 * NS_PER_S


class Stages:
    """A pipeline whose stages write down what happens to them."""

    def __init__(
        self, clock: Clock, capacity: int = 16384, first_window_ns: int | None = None
    ) -> None:
        self.events: list[object] = []
        self.recorder = Recorder(Timeline(FakeClock(), 0), capacity)
        self.totals = Totals()
        self.at_begin: Callable[[], None] = lambda: None
        self.at_poll: Callable[[], None] = lambda: None
        self.at_close: Callable[[int, bool], None] = lambda now_ns, is_last: None
        self.pipeline = Pipeline(
            self.recorder,
            self.totals,
            clock,
            WINDOW_NS,
            begin=self._begin,
            poll=self._poll,
            close=self._close,
            first_window_ns=first_window_ns,
        )

    def _begin(self) -> None:
        self.events.append("begin")
        self.at_begin()

    def _poll(self) -> None:
        self.at_poll()

    def _close(self, now_ns: int, is_last: bool) -> None:
        self.events.append((now_ns, is_last))
        self.at_close(now_ns, is_last)

    def stop_at_close(self, num: int) -> None:
        """Ask for the end at the ``num``-th window, from inside it."""

        def stop(now_ns: int, is_last: bool) -> None:
            if len(self.events) - 1 == num and not is_last:
                assert not self.pipeline.stop(0.0), "the thread cannot have ended inside itself"

        self.at_close = stop

    def run(self) -> list[object]:
        """Run to the end and return what happened."""
        self.pipeline.start()
        self.pipeline.thread.join(20)
        assert not self.pipeline.thread.is_alive()
        return self.events


def scripted(*readings_s: float) -> Clock:
    """Return a clock that shows these seconds one after another, and the last one for ever."""
    left = [round(reading_s * NS_PER_S) for reading_s in readings_s]
    return lambda: left.pop(0) if len(left) > 1 else left[0]


def test_the_stages_come_in_order_and_the_last_window_is_marked() -> None:
    """Begin, a window whenever its time has come, and one more at the end."""
    # Read at the timeline's end of `begin`, then before and after each wait.
    stages = Stages(scripted(0, 10, 10, 20, 20.5, 30, 30, 31))
    stages.stop_at_close(3)
    assert stages.run() == [
        "begin",
        (10 * NS_PER_S, False),
        (round(20.5 * NS_PER_S), False),
        (30 * NS_PER_S, False),
        (31 * NS_PER_S, True),
    ]


def test_a_shorter_first_window_shifts_all_others() -> None:
    """Ranks that begin together stay apart: every later window is as long as usual."""
    stages = Stages(scripted(0, 0, 3, 3, 13, 13, 23, 24), first_window_ns=3 * NS_PER_S)
    stages.stop_at_close(3)
    ends_s = [event[0] / NS_PER_S for event in stages.run()[1:]]
    assert ends_s == [3, 13, 23, 24]


def test_a_process_that_was_stopped_gets_one_long_window() -> None:
    """C011: after a SIGSTOP of an hour comes one window, not 360 empty ones, then a usual one."""
    stages = Stages(scripted(0, 3600, 3600, 3605, 3604, 3605, 3605, 3606))
    stages.stop_at_close(2)
    assert stages.run() == [
        "begin",
        (3600 * NS_PER_S, False),
        (3605 * NS_PER_S, False),
        (3606 * NS_PER_S, True),
    ]


def test_rows_are_totalled_before_the_window_closes() -> None:
    """What was cut before the end of a window is in it, polled events too."""
    stages = Stages(FakeClock())
    for _ in range(250):
        stages.recorder.cut()
    polled = []
    stages.at_poll = lambda: polled.append(stages.totals.histogram.count)
    seen: list[tuple[int, int]] = []
    stages.at_close = lambda now_ns, is_last: seen.append(
        (stages.totals.histogram.count, len(polled))
    )
    stages.pipeline.start()
    assert stages.pipeline.stop(20)
    assert seen == [(249, len(polled))]
    assert polled[-1] == 249


def test_stopping_asks_for_the_last_window_and_tells_whether_it_came() -> None:
    """A begin that hangs on a dead store does not hold the training's end up."""
    stages = Stages(FakeClock())
    is_alive = threading.Event()
    stages.at_begin = lambda: bool(is_alive.wait(20)) and None
    stages.pipeline.start()
    assert not stages.pipeline.stop(0.01)
    assert not stages.pipeline.ready.is_set()
    is_alive.set()
    assert stages.pipeline.stop(20)
    assert stages.events == ["begin", (0, True)]
    assert stages.pipeline.stop(0.0), "stopping twice is stopping once"


def test_a_pipeline_that_never_started_has_stopped() -> None:
    """There is nothing to wait for."""
    assert Stages(FakeClock()).pipeline.stop(0.0)


@pytest.mark.parametrize("stage", ["at_begin", "at_poll", "at_close"])
def test_a_stage_that_fails_is_counted_and_the_others_go_on(stage: str, contained: Faults) -> None:
    """One broken stage costs its own work only; windows go on to the last one."""
    stages = Stages(scripted(0, 10, 10, 20, 20, 21))
    stages.stop_at_close(2)
    stages.recorder.cut()
    healthy = getattr(stages, stage)

    def fail(*args: object) -> None:
        healthy(*args)
        raise OSError(stage)

    setattr(stages, stage, fail)
    assert [event for event in stages.run() if event != "begin"] == [
        (10 * NS_PER_S, False),
        (20 * NS_PER_S, False),
        (21 * NS_PER_S, True),
    ]
    place = "pipeline." + stage.removeprefix("at_")
    num_faults = {"at_begin": 1, "at_poll": 3, "at_close": 3}[stage]
    assert contained.counts == {place: num_faults}
    assert stages.pipeline.ready.is_set()


def test_a_row_that_cannot_be_totalled_does_not_stop_polling(
    contained: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Device events are resolved even when adding up fails."""
    stages = Stages(FakeClock())
    stages.recorder.cut()
    monkeypatch.setattr(stages.totals, "add", lambda row: 1 / 0)
    polled: list[int] = []
    stages.at_poll = lambda: polled.append(1)
    stages.pipeline.start()
    assert stages.pipeline.stop(20)
    assert contained.counts == {"pipeline.drain": 1}
    assert polled


def test_a_loop_faster_than_the_drain_does_not_keep_windows_from_closing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A drain ends after as many rows as the ring holds, even if more keep coming."""
    stages = Stages(FakeClock(), capacity=400)
    add = stages.totals.add

    def add_and_cut_more(row: object) -> None:
        add(row)  # type: ignore[arg-type]
        for _ in range(2):
            stages.recorder.cut()

    monkeypatch.setattr(stages.totals, "add", add_and_cut_more)
    for _ in range(100):
        stages.recorder.cut()
    stages.pipeline.start()
    assert stages.pipeline.stop(20)
    assert stages.events[-1] == (0, True)
    assert stages.recorder.num_dropped > 0


def test_the_thread_is_a_daemon_and_tells_what_it_costs() -> None:
    """It cannot keep a process alive, and its own processor time is known."""
    stages = Stages(FakeClock())

    def work() -> None:
        until_ns = time.thread_time_ns() + 5_000_000
        while time.thread_time_ns() < until_ns:
            pass

    stages.at_begin = work
    stages.pipeline.start()
    assert stages.pipeline.thread.daemon
    assert stages.pipeline.thread.name == "costlens-pipeline"
    assert stages.pipeline.stop(20)
    assert stages.pipeline.cpu_ns >= 5_000_000


def test_the_training_thread_is_looked_at_between_two_drains() -> None:
    """Several times a second, at uneven distances, so that no loop's period can hide from it."""
    times_s: list[float] = []
    recorder = Recorder(Timeline(FakeClock(), 0), 16)
    pipeline = Pipeline(
        recorder,
        Totals(),
        lambda: 0,
        WINDOW_NS,
        begin=lambda: None,
        poll=lambda: None,
        close=lambda _now_ns, _is_last: None,
        look=lambda: times_s.append(time.monotonic()),
    )
    pipeline.start()
    while len(times_s) < 6:
        time.sleep(0.01)
    assert pipeline.stop(20)
    gaps_s = [after - before for before, after in itertools.pairwise(times_s)]
    assert max(gaps_s) - min(gaps_s) > 0.01
