"""Findings of a live rank: they last before they are told, and are gone for long before they go."""

from __future__ import annotations

import pytest

from costlens.core.records import RankRecord
from costlens.diagnose.watch import CLOSES_AFTER, MAX_RECORDS, OPENS_AFTER, FindingWatch
from tests.unit.account.build import START, make_iteration_time, make_record
from tests.unit.diagnose.planted import always, find, waits

WINDOW_S = 10.0


class Live:
    """A rank that makes windows of 10 s; each is as one says."""

    def __init__(self, *rules: object, step_s: float = 0.5) -> None:
        self.watch = FindingWatch(rules or [waits()])  # type: ignore[arg-type]
        self.opened: list[str] = []
        self.closed: list[str] = []
        self._step_s = step_s
        self._steps: list[float] = []
        self._time_s = {"startup": 5.0, "compute": 0.0, "data_wait": 0.0, "validation": 0.0}
        self.stopped_s = 0.0

    def window(self, wait: float = 0.0, *, num: int = 1, evaluates: bool = False) -> None:
        """Let windows pass in which this share of the time is a wait for data."""
        for _ in range(num):
            if evaluates:
                self._time_s["validation"] += WINDOW_S
            else:
                self._time_s["compute"] += WINDOW_S * (1 - wait)
                self._time_s["data_wait"] += WINDOW_S * wait
                self._steps += [self._step_s] * max(1, round(WINDOW_S / self._step_s))
            self.look()

    def look(self) -> None:
        """Close a window."""
        change = self.watch.look(self.record())
        self.opened += [each.finding.name for each in change.opened]
        self.closed += [each.finding.name for each in change.closed]

    def record(self) -> RankRecord:
        """Return the record as it stands."""
        return make_record(
            time_s=self._time_s,
            outcome="running",
            iteration_time=make_iteration_time(*self._steps),
            stopped_s=self.stopped_s,
        )


def test_a_cause_is_told_once_it_has_lasted() -> None:
    """The first record begins the stretch; then three windows in a row must show the cause."""
    live = Live()
    live.window(0.5, num=OPENS_AFTER)
    assert live.opened == []
    live.window(0.5)
    assert live.opened == ["data_wait"]
    live.window(0.5, num=5)
    assert live.opened == ["data_wait"]


def test_a_passing_cause_is_never_told() -> None:
    """One bad window in a minute of good ones stays below the share that counts, and unsaid."""
    live = Live(waits(least=0.2))
    live.window(num=7)
    live.window(0.9)
    live.window(num=10)
    assert live.opened == []


def test_a_cause_is_over_when_it_has_been_gone_for_long() -> None:
    """It leaves the stretch of six windows first, and stays away for six more."""
    live = Live()
    live.window(0.5, num=8)
    live.window(num=MAX_RECORDS - 1 + CLOSES_AFTER - 2)
    assert live.closed == []
    live.window(num=CLOSES_AFTER)
    assert live.closed == ["data_wait"]
    (standing,) = live.watch.standing
    assert not standing.is_open


def test_a_cause_that_comes_and_goes_does_not_flap() -> None:
    """Every other window bad, for a hundred windows: told once, and never over."""
    live = Live(waits(least=0.3))
    for _ in range(50):
        live.window(0.8)
        live.window(0.0)
    assert (live.opened, live.closed) == (["data_wait"], [])


def test_the_same_loss_under_another_name_is_over_at_once() -> None:
    """Once it is known why data is late, that it is late for another reason stands no longer."""
    live = Live(waits("data_preprocessing"))
    live.window(0.5, num=6)
    live.watch.rules = [waits("slow_collate")]
    live.window(0.5)
    assert (live.opened, live.closed) == (["data_preprocessing"], ["data_preprocessing"])
    live.window(0.5, num=OPENS_AFTER)
    assert live.opened == ["data_preprocessing", "slow_collate"]


def test_evaluation_neither_opens_nor_closes() -> None:
    """While only evaluation runs there is nothing to judge: what stands stands, afterwards too."""
    live = Live()
    live.window(0.5, num=6)
    live.window(evaluates=True, num=30)
    assert live.watch.unjudged == "no step has ended in the newest window"
    live.window(0.5, num=20)
    assert (live.opened, live.closed) == (["data_wait"], [])


def test_dangers_are_looked_for_while_it_evaluates() -> None:
    """A device that fails in a long validation is told then."""
    live = Live(waits(), always(find("hardware_fault", None), needs_steps=False))
    live.window()
    live.window(evaluates=True, num=OPENS_AFTER)
    assert live.opened == ["hardware_fault"]


def test_slow_steps_are_looked_at_over_a_longer_stretch() -> None:
    """Steps of 10 s: one a window; after twenty of them they are judged, with no more records."""
    live = Live(step_s=10.0)
    live.window(0.5, num=20)
    assert live.opened == []
    live.window(0.5, num=OPENS_AFTER)
    assert live.opened == ["data_wait"]


@pytest.mark.parametrize("step_s", [0.5, 3.0, 10.0, 100.0])
def test_memory_is_bounded(step_s: float) -> None:
    """However long the run and its steps: seven records and sixteen causes."""
    live = Live(*[always(find(f"cause_{n}", 0.3)) for n in range(40)], step_s=step_s)
    for _ in range(200):
        live.window(0.5)
        assert len(live.watch._records) <= MAX_RECORDS
        assert len(live.watch._standing) <= 16


def test_start_up_is_in_no_stretch() -> None:
    """C009: what start-up takes is no share of what is judged."""
    live = Live()
    live._time_s["startup"] = 600.0
    live.look()
    live.window(0.5, num=6)
    (standing,) = live.watch.standing
    assert standing.finding.saved_share == pytest.approx(0.5)


def test_a_stopped_process_is_looked_at_anew() -> None:
    """C011: what was waited for while the process stood still is in no stretch."""
    live = Live()
    live.window(num=7)
    live.stopped_s = 60.0
    live._time_s["data_wait"] += 60.0
    live.window()
    live.window(num=12)
    assert live.opened == []
    live.window(0.5, num=6)
    assert live.opened == ["data_wait"]


def test_what_it_has_cost_is_added_up() -> None:
    """Half of every window is lost: 10 windows after the first found cost 5 s each."""
    live = Live()
    live.window(0.5, num=11)
    (standing,) = live.watch.standing
    assert standing.lost_s == pytest.approx(50.0)
    assert standing.since_time == pytest.approx(START + 5.0 + WINDOW_S)


def test_an_attempt_begins_afresh() -> None:
    """The records of another attempt are no earlier ones of this."""
    live = Live()
    live.window(0.5, num=6)
    other = make_record(2, time_s={"compute": 1.0}, iteration_time=make_iteration_time(*[0.1] * 30))
    change = live.watch.look(other)
    assert (change.opened, change.closed) == ((), ())
    assert live.watch.standing == []
    assert live.watch.unjudged == "still starting"
