"""The brackets alone: names, nesting and exact times over a clock that stands still."""

from __future__ import annotations

import pytest

from costlens.core.attempt_state import AttemptState
from costlens.core.clock import Anchor
from costlens.core.phases import Phase
from costlens.core.recorder import Recorder
from costlens.core.records import RankPart, RunPart
from costlens.core.timeline import Timeline
from costlens.observe.trainer.brackets import BracketProfiler, ScopeTable
from costlens.observe.trainer.loop import LoopTimes
from costlens.observe.trainer.methods import ScopedMethod
from costlens.observe.trainer.names import ScopeMaker
from costlens.observe.trainer.scopes import EvaluationScope
from costlens.testing import FakeClock

FETCH = "[_TrainingEpochLoop].train_dataloader_next"


class PassThroughProfiler:
    """Stands for Lightning's own default."""


class Loop:
    """Drives brackets in the order of Lightning's loop, one second each unless told otherwise."""

    def __init__(self) -> None:
        self.clock = FakeClock(1)
        self.timeline = Timeline(self.clock, 1)
        self.recorder = Recorder(self.timeline)
        self.recorder.counters.watch_steps()
        run = RunPart(id="run", name="run", costlens_version="0")
        rank = RankPart(rank=0, host_name="host", pid=1)
        self.state = AttemptState(run=run, rank=rank, anchor=Anchor(0, 0), start_ns=1)
        self.times = LoopTimes(self.timeline, self.recorder, self.state)
        self.times.begin_setup()
        table = ScopeTable(ScopeMaker(self.times, lambda kind, owner, hook: hook != "quiet"))
        self.profiler = BracketProfiler(PassThroughProfiler(), table)
        self.times.profiler = self.profiler

    def spend(self, name: str, seconds: float = 1.0) -> None:
        with self.profiler.profile(name):
            self.clock.advance(seconds)

    def fetch(self, seconds: float = 1.0) -> None:
        self.profiler.start(FETCH)
        self.clock.advance(seconds)
        self.profiler.stop(FETCH)

    def batch(self) -> None:
        """Fetch, transfer, forward, backward, update; then a callback and a logger."""
        self.fetch(1)
        self.spend("[Strategy]S.batch_to_device", 2)
        with (
            self.profiler.profile("run_training_batch"),
            self.profiler.profile("[LightningModule]M.optimizer_step"),
        ):
            self.clock.advance(3)
            self.spend("[Strategy]S.training_step", 4)
            with self.profiler.profile("[Strategy]S.backward"):
                self.spend("[LightningModule]M.on_before_backward", 0)
                self.clock.advance(5)
                self.spend("[LightningModule]M.on_after_backward", 0)
        self.times.is_complete = True
        self.spend("[LightningModule]M.on_train_batch_end", 6)
        self.clock.advance(7)

    def seconds(self) -> dict[str, float]:
        self.timeline.mark()
        assert sum(self.timeline.phase_ns) == self.clock() - 1
        return {
            phase.name.lower(): self.timeline.phase_ns[phase] / 1e9
            for phase in Phase
            if self.timeline.phase_ns[phase]
        }


@pytest.fixture
def loop() -> Loop:
    """Return a loop at its beginning."""
    return Loop()


def test_every_nanosecond_of_a_batch_has_one_phase(loop) -> None:
    """Two batches: the first is start-up, the second is split to the nanosecond."""
    with loop.profiler.profile("run_training_epoch"):
        loop.batch()
        loop.batch()
    assert loop.seconds() == {
        "startup": 28,
        "data_wait": 1,
        "transfer": 2,
        "optimizer": 3,
        "forward": 4,
        "backward": 5,
        "callbacks": 6,
        "logging": 7,
    }
    first, second = loop.recorder.drain(10)
    assert second.start_ns == first.end_ns
    assert second.end_ns - second.start_ns == 28e9
    assert loop.state.first_fetch_ns == 1
    assert loop.recorder.first_cut_ns == first.end_ns
    assert loop.timeline.depth == 0


def test_the_gap_after_a_batch_is_logging_less_its_brackets(loop) -> None:
    """A callback, a scheduler and a save in the gap keep their own phases."""
    with loop.profiler.profile("run_training_epoch"):
        loop.batch()
        loop.fetch(0)
        loop.spend("[LightningModule]M.on_train_batch_end", 0)
        loop.clock.advance(1)
        with loop.profiler.profile("[Callback]Other.on_validation_end"):
            loop.clock.advance(2)
            loop.spend("save_checkpoint", 3)
        loop.spend("[LightningModule]M.lr_scheduler_step", 4)
        loop.clock.advance(5)
    expected = {"logging": 6, "callbacks": 2, "checkpoint": 3, "optimizer": 4}
    assert {name: loop.seconds().get(name) for name in expected} == expected


def test_an_incomplete_batch_is_no_row(loop) -> None:
    """An exception in a batch closes everything that was open and cuts nothing."""

    def fail() -> None:
        with loop.profiler.profile("run_training_epoch"):
            loop.batch()
            loop.fetch()
            with loop.profiler.profile("run_training_batch"):
                loop.spend("[LightningModule]M.on_before_backward", 0)
                raise ValueError("planted")

    with pytest.raises(ValueError, match="planted"):
        fail()
    assert len(list(loop.recorder.drain(10))) == 1
    assert loop.timeline.depth == 0


def test_what_comes_before_the_first_bracket_of_an_epoch_is_data_wait(loop) -> None:
    """Creating the iterator, after the first epoch, until a bracket of any kind opens."""
    for bracket in ("start", "profile"):
        with loop.profiler.profile("run_training_epoch"):
            loop.batch()
        before = loop.seconds().get("data_wait", 0)
        with loop.profiler.profile("run_training_epoch"):
            loop.clock.advance(5)
            if bracket == "start":
                loop.fetch(0)
            else:
                loop.spend("anything at all", 9)
        assert loop.seconds()["data_wait"] - before == 5


def test_an_epoch_without_any_bracket_ends_its_wait(loop) -> None:
    """A loader that is empty, or fails, leaves nothing open."""
    with loop.profiler.profile("run_training_epoch"):
        loop.clock.advance(5)
    loop.spend("anything at all", 1)
    assert loop.timeline.depth == 0


def test_a_bracket_may_open_inside_itself(loop) -> None:
    """The same name twice, as a user's recursive action or a nested save has it."""
    with loop.profiler.profile("save_checkpoint"):
        loop.spend("save_checkpoint", 1)
        loop.clock.advance(1)
    assert loop.seconds()["checkpoint"] == 2


def test_hooks_that_nobody_overrides_read_no_clock(loop) -> None:
    """Such a bracket costs a look-up and is the same object for all of them."""
    quiet = [loop.profiler.profile(f"[Callback]C{index}.quiet") for index in range(3)]
    assert quiet[0] is quiet[1] is quiet[2]
    assert loop.profiler.profile("[Callback]CostLensCallback['a'].on_train_batch_end") is quiet[0]
    since_ns = loop.timeline.since_ns
    loop.spend("[Callback]C0.quiet", 1)
    assert loop.timeline.since_ns == since_ns


def test_the_sanity_check_is_no_evaluation(loop) -> None:
    """The loop of a validation is wrapped on the one object, and a sanity check stays start-up."""

    class Trainer:
        sanity_checking = True

    class Evaluation:
        def run(self) -> str:
            loop.spend("[Strategy]S.validation_step", 2)
            return "done"

    evaluation = Evaluation()
    scope = EvaluationScope(loop.times, Trainer, "validation", is_all=False)
    method = ScopedMethod(evaluation, "run", scope)
    assert evaluation.run() == "done"
    assert (loop.seconds(), loop.recorder.counters.validation_batches) == ({"startup": 2}, 0)
    Trainer.sanity_checking = False
    assert evaluation.run() == "done"
    assert loop.seconds() == {"startup": 2, "validation": 2}
    assert loop.recorder.counters.validation_batches == 1
    method.remove()
    assert "run" not in vars(evaluation)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0)])
def test_wrappers_come_off_in_any_order(loop, order) -> None:
    """Of three watchers each may leave first; the others go on, and at last nothing is left."""

    class Owner:
        profiler = None

        def run(self) -> None:
            return None

    entered = []

    class Noting:
        def __init__(self, index) -> None:
            self.index = index

        def __enter__(self) -> None:
            entered.append(self.index)

        def __exit__(self, *_) -> None:
            return None

    original, owner = PassThroughProfiler(), Owner()
    owner.profiler = original
    methods = [ScopedMethod(owner, "run", Noting(index)) for index in range(3)]
    profilers = [
        BracketProfiler.install(owner, ScopeTable(lambda _, index=index: Noting(index)))
        for index in range(3)
    ]
    left = {0, 1, 2}
    for index in order:
        entered.clear()
        owner.run()
        assert set(entered) == left
        entered.clear()
        with owner.profiler.profile("x"):
            assert set(entered) == left
        methods[index].remove()
        profilers[index].remove(owner)
        left.discard(index)
    assert "run" not in vars(owner)
    assert owner.profiler is original
