"""Phases and iterations as ``with`` blocks."""

from __future__ import annotations

import json
import threading

import pytest

from costlens.core.phases import NAMES, Phase
from costlens.core.recorder import UNKNOWN, Recorder
from costlens.core.scopes import INERT_SCOPE, IterationScope, PhaseScope
from costlens.core.timeline import Timeline
from costlens.testing import FakeClock


class Taken:
    """Remembers what scopes hand over."""

    def __init__(self) -> None:
        self.counts: list[tuple[str, object, int]] = []
        self.metrics: list[tuple[str, object, int]] = []

    def add_count(self, name: str, value: object, number: int) -> None:
        """Remember a count."""
        self.counts.append((name, value, number))

    def add_metric(self, name: str, value: object, number: int) -> None:
        """Remember a metric."""
        self.metrics.append((name, value, number))


class Loop:
    """A loop past its start-up, on a clock of its own."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.timeline = Timeline(self.clock, 0, Phase.OTHER)
        self.recorder = Recorder(self.timeline)
        self.taken = Taken()
        self.iteration = IterationScope(self.recorder, self.taken)

    def spent(self) -> dict[str, int]:
        """Return the nanoseconds of every phase that has any."""
        self.timeline.mark()
        booked = zip(NAMES, self.timeline.phase_ns, strict=True)
        return {name: value for name, value in booked if value}


@pytest.fixture
def loop() -> Loop:
    """Return a loop."""
    return Loop()


def test_a_phase_gets_the_time_of_its_block(loop: Loop) -> None:
    """Before, inside and after a block go to their own phases."""
    loop.clock.advance_ns(1)
    with PhaseScope(loop.timeline, Phase.VALIDATION):
        loop.clock.advance_ns(10)
    loop.clock.advance_ns(100)
    assert loop.spent() == {"other": 101, "validation": 10}


def test_a_phase_may_be_entered_again_and_inside_itself(loop: Loop) -> None:
    """One scope object serves a bracket that is cached and nests."""
    phase = PhaseScope(loop.timeline, Phase.CALLBACKS)
    with phase, phase:
        loop.clock.advance_ns(5)
    with phase:
        loop.clock.advance_ns(5)
    assert loop.spent() == {"callbacks": 10}
    assert loop.timeline.depth == 0


def test_an_exception_passes_and_what_it_left_open_is_closed(loop: Loop) -> None:
    """A forward pass that raised inside a phase does not go on for ever."""

    def fail() -> None:
        with PhaseScope(loop.timeline, Phase.VALIDATION):
            loop.timeline.enter(Phase.CHECKPOINT)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert loop.timeline.depth == 0
    loop.clock.advance_ns(3)
    assert loop.spent() == {"other": 3}


def test_a_phase_on_another_thread_books_nothing(loop: Loop) -> None:
    """A writer thread that says `checkpoint` does not stop the training's clock."""

    def save() -> None:
        with PhaseScope(loop.timeline, Phase.CHECKPOINT):
            loop.clock.advance_ns(50)

    with PhaseScope(loop.timeline, Phase.FORWARD):
        helper = threading.Thread(target=save)
        helper.start()
        helper.join()
    assert loop.spent() == {"forward": 50}


def test_the_thread_that_iterates_is_the_one_that_trains(loop: Loop) -> None:
    """A run that was started elsewhere books the phases of the thread that runs its loop."""

    def train() -> None:
        with loop.iteration, PhaseScope(loop.timeline, Phase.FORWARD):
            loop.clock.advance_ns(50)

    trainer = threading.Thread(target=train)
    trainer.start()
    trainer.join()
    assert loop.spent() == {"forward": 50}


def test_an_iteration_counts_what_it_was_given(loop: Loop) -> None:
    """Integers are counted at once, anything else is handed over with the iteration's number."""
    tensor = object()
    with loop.iteration.prepare(4, 512, tensor, None, 2):
        loop.clock.advance_ns(9)
    (row,) = loop.recorder.drain(10)
    assert (row.micro_batches, row.samples, row.slots) == (2, 4, 512)
    assert (row.tokens, row.loss_tokens) == (UNKNOWN, UNKNOWN)
    assert loop.taken.counts == [("tokens", tensor, 0)]
    assert loop.spent() == {"compute": 9}


def test_no_count_is_read_on_the_training_thread(loop: Loop) -> None:
    """Samples, too, may be a tensor on a device: nothing converts it."""

    class Untouchable:
        def __getattribute__(self, name: str) -> object:
            raise AssertionError(f"{name} was read")

    value = Untouchable()
    with loop.iteration.prepare(value, value, value, value, 1):
        pass
    assert [name for name, _, _ in loop.taken.counts] == [
        "samples", "slots", "tokens", "loss_tokens"
    ]  # fmt: skip


def test_an_iteration_that_raises_is_not_counted(loop: Loop) -> None:
    """The exception passes, the time stays, the counts do not."""

    def fail() -> None:
        with loop.iteration.prepare(4, None, 30, None, 1):
            loop.timeline.enter(Phase.BACKWARD)
            loop.clock.advance_ns(6)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert loop.recorder.counters.iterations == loop.recorder.counters.micro_batches == 0
    assert loop.recorder.counters.tokens == UNKNOWN
    assert loop.timeline.depth == 0
    assert loop.spent() == {"backward": 6}


def test_an_iteration_inside_an_iteration_is_part_of_it(
    loop: Loop, capsys: pytest.CaptureFixture[str]
) -> None:
    """The inner one counts nothing, the outer one keeps its counts, and one line says so."""
    with loop.iteration.prepare(4, None, 30, None, 1):
        for _ in range(2):
            with loop.iteration.prepare(1, None, 7, None, 1) as inner:
                inner.log(loss=1.0)
                loop.clock.advance_ns(5)
    counters = loop.recorder.counters
    assert (counters.iterations, counters.samples, counters.tokens) == (1, 4, 30)
    assert loop.timeline.depth == 0
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["event"] for line in lines] == ["costlens.iteration.nested"]


def test_an_iteration_whose_phases_were_closed_from_outside_can_be_entered_again(
    loop: Loop,
) -> None:
    """A run that was finished inside an iteration does not take the next one for a nested one."""
    loop.iteration.prepare(1, None, None, None, 1).__enter__()
    loop.timeline.unwind(0)
    with loop.iteration.prepare(1, None, None, None, 1):
        pass
    assert loop.recorder.counters.iterations == 1


def test_metrics_belong_to_the_iteration_that_logs_them(loop: Loop) -> None:
    """Values carry the number of the iteration under way."""
    for loss in (3.0, 2.0):
        with loop.iteration as iteration:
            iteration.log(loss=loss)
    assert loop.taken.metrics == [("loss", 3.0, 0), ("loss", 2.0, 1)]


def test_a_run_that_is_off_lets_everything_pass() -> None:
    """The inert scope takes any call and hides no exception."""

    def fail() -> None:
        with INERT_SCOPE.prepare(1, 2, 3, 4, 5) as scope:
            scope.log(loss=1.0)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
