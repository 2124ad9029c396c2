"""How fits begin, end, go on and are left alone: the cases about Lightning's quirks."""

from __future__ import annotations

import json
import math
import time
from decimal import Decimal

import pytest

from costlens.account.ledger import merge
from costlens.core.guard import faults
from costlens.core.records import Outcome
from costlens.errors import ConfigError
from costlens.lightning import CostLensCallback
from costlens.observe.trainer import facts, states
from costlens.run import Run
from costlens.testing import MemoryExporter
from tests.adapters.lightning.jobs import (
    Plant,
    fit,
    make_module,
    make_trainer,
    record_of,
    rows,
    seconds,
)


def test_a_second_fit_that_does_nothing_is_no_second_run(pl, written) -> None:
    """C113: `max_steps=5` fitted twice makes 5 steps, then none, in one run of one attempt."""
    callback = CostLensCallback("twice")
    module, trainer = make_module(pl), make_trainer(pl, callback, max_steps=5)
    trainer.fit(module, rows(10))
    first = record_of(callback)
    trainer.fit(module, rows(10))
    second = record_of(callback)
    assert first.progress.iterations == second.progress.iterations == 5
    assert second.rates == first.rates  # no rate out of nothing
    assert second.attempt.outcome is Outcome.COMPLETED
    assert second.time_ns["idle"] > 0
    assert second.run.id == first.run.id
    assert len(written()) == 1


def test_a_second_fit_goes_on_after_an_idle_time(pl, clock) -> None:
    """C113: `max_epochs=2` of 10 batches, then 4: 20 and 40 steps; the time between is idle."""
    callback = CostLensCallback("more")
    module = make_module(pl, step=Plant(clock))
    trainer = make_trainer(pl, callback, max_epochs=2)
    trainer.fit(module, rows(10))
    assert record_of(callback).progress.iterations == 20
    clock.advance(300)
    trainer.fit_loop.max_epochs = 4
    trainer.fit(module, rows(10))
    record = record_of(callback)
    assert (record.progress.iterations, record.progress.optimizer_steps) == (40, 40)
    assert (record.attempt.start_step, record.attempt.end_step) == (0, 40)
    # The first iteration of each fit is start-up.
    assert seconds(record) == {"forward": 38, "idle": 300}
    assert record.iteration_time.count == 38
    assert record.rates.samples_per_s == pytest.approx(1)


def test_the_sanity_check_is_start_up(pl) -> None:
    """C121: 2 batches of sanity and 4 of validation are 4 of validation, and one value of it."""
    record = fit(pl, make_module(pl), rows(3), rows(4), max_epochs=1, num_sanity_val_steps=2)
    assert record.progress.validation_batches == 4
    assert record.quality["val_loss"].num_values == 1
    assert record.quality["val_loss"].last_iteration == 2


def test_the_sanity_checks_time_is_start_up(pl, clock) -> None:
    """C121: no time of the sanity check is validation, and it is part of the set-up."""
    module = make_module(pl, validation=Plant(clock))
    record = fit(pl, module, rows(3), rows(4), max_epochs=1, num_sanity_val_steps=2)
    assert seconds(record) == {"validation": 4}
    assert record.startup.setup_s == 2


@pytest.mark.parametrize(
    ("error", "raised", "outcome", "exit_code"),
    [
        (KeyboardInterrupt(), SystemExit, "interrupted", 1),
        (RuntimeError("planted"), RuntimeError, "failed", None),
    ],
)
def test_an_exception_ends_the_run_and_passes_on(
    pl, written, error, raised, outcome, exit_code
) -> None:
    """C122: in batch 3 it leaves 3 steps, flushed; exception and exit code are Lightning's own."""

    def step(_, at) -> None:
        if at == 3:
            raise error

    callback = CostLensCallback("ends")
    trainer = make_trainer(pl, callback, max_epochs=1)
    with pytest.raises(raised) as caught:
        trainer.fit(make_module(pl, step=step), rows(10))
    if raised is SystemExit:
        assert caught.value.code == 1
    else:
        assert caught.value is error
    record = record_of(callback)
    assert record.attempt.outcome.value == outcome
    assert record.attempt.exit_code == exit_code
    assert record.attempt.error_type == type(error).__name__
    progress = record.progress
    assert (progress.iterations, progress.optimizer_steps, progress.micro_batches) == (3, 3, 3)
    assert progress.samples == 3
    assert [each["attempt"]["outcome"] for each in written()] == [outcome]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("planted")])
def test_an_exception_flushes_the_exporters(pl, monkeypatch, error) -> None:
    """C122: once the exception has left `fit`, exporters have the last window and are closed."""

    def step(_, at) -> None:
        if at == 3:
            raise error

    memory = MemoryExporter()
    monkeypatch.setitem(Run.__init__.__kwdefaults__, "exporters", [memory])
    trainer = make_trainer(pl, CostLensCallback("flushed"), max_epochs=1)
    with pytest.raises((SystemExit, RuntimeError)):
        trainer.fit(make_module(pl, step=step), rows(10))
    assert memory.is_finished
    assert [snapshot.is_last for snapshot in memory.snapshots].count(True) == 1
    last = memory.snapshots[-1]
    assert last.is_last
    assert last.record.progress.optimizer_steps == 3
    assert sum(snapshot.window.counts["samples"] for snapshot in memory.snapshots) == 3


def test_a_batch_that_ended_counts_though_a_callback_fails_after_it(pl) -> None:
    """C122: what breaks after a complete batch does not undo it."""

    class Failing(pl.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx) -> None:
            if batch_idx == 3:
                raise RuntimeError("planted")

    callback = CostLensCallback("ends")
    with pytest.raises(RuntimeError, match="planted"):
        make_trainer(pl, callback, Failing(), max_epochs=1).fit(make_module(pl), rows(10))
    assert record_of(callback).progress.iterations == 4


def test_a_trainer_trains_again_after_a_crash(pl) -> None:
    """A fit after one that crashed is watched like any, in the same run."""
    crashes = [True]

    def step(_, at) -> None:
        if at == 2 and crashes:
            crashes.pop()
            raise RuntimeError("planted")

    callback = CostLensCallback("again")
    module, trainer = make_module(pl, step=step), make_trainer(pl, callback, max_epochs=1)
    profiler = trainer.profiler
    with pytest.raises(RuntimeError, match="planted"):
        trainer.fit(module, rows(5))
    assert trainer.profiler is profiler
    trainer.fit(module, rows(5))
    assert trainer.profiler is profiler
    record = record_of(callback)
    assert record.attempt.outcome is Outcome.COMPLETED
    assert record.progress.iterations == record.progress.micro_batches >= 5


def test_an_early_stop_is_a_normal_end(pl, written) -> None:
    """C123: asked to stop in batch 3 of 10, in 5 epochs: 4 steps, stopped early, one record."""
    callback = CostLensCallback("early")

    class Stopper(pl.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx) -> None:
            trainer.should_stop = batch_idx == 3

    make_trainer(pl, callback, Stopper(), max_epochs=5).fit(make_module(pl), rows(10))
    record = record_of(callback)
    assert record.progress.optimizer_steps == 4
    assert record.attempt.outcome is Outcome.STOPPED_EARLY
    assert record.attempt.exit_code is None
    assert len(written()) == 1


def test_a_stop_at_the_limit_is_not_early(pl) -> None:
    """Where the limit is reached as well, the training is complete."""

    class Stopper(pl.Callback):
        def on_train_batch_end(self, trainer, *_) -> None:
            trainer.should_stop = trainer.global_step >= 4

    record = fit(pl, make_module(pl), rows(10), others=[Stopper()], max_steps=4)
    assert record.attempt.outcome is Outcome.COMPLETED


def test_testing_and_predicting_alone_are_no_training(pl, monkeypatch) -> None:
    """C124: `test`, then `predict`: the stage is named, no step, rate or cost of a token."""
    monkeypatch.setenv("COSTLENS_NODE_HOUR_PRICE", "3600")
    callback = CostLensCallback("test only")
    module, trainer = make_module(pl), make_trainer(pl, callback)
    trainer.test(module, rows(3), verbose=False)
    tested = record_of(callback)
    assert tested.attempt.stage == "test"
    assert (tested.progress.test_batches, tested.progress.validation_batches) == (3, 0)
    assert tested.time_ns["validation"] > 0
    trainer.predict(module, rows(4))
    record = record_of(callback)
    assert record.attempt.stage == "prediction"
    assert record.attempt.outcome is Outcome.COMPLETED
    for each in (tested, record):
        assert (each.progress.iterations, each.progress.optimizer_steps) == (0, None)
        assert each.progress.samples is None
        assert each.rates.iterations_per_s is None
        assert each.attempt.start_step is None
        cost = merge([each], now=time.time()).cost
        assert Decimal(cost.total) > 0, "the time is paid for, but as no training"
        assert (cost.per_1k_tokens, cost.per_million_tokens) == (None, None)
        assert cost.per_million_productive_tokens is None
    assert record.time_ns["idle"] > 0


def test_validating_alone_names_its_stage(pl) -> None:
    """C124: `validate` is the stage validation, its batches are counted and its values kept."""
    callback = CostLensCallback("validate only")
    make_trainer(pl, callback).validate(make_module(pl), rows(3), verbose=False)
    record = record_of(callback)
    assert record.attempt.stage == "validation"
    assert record.progress.validation_batches == 3
    assert record.quality["val_loss"].num_values == 1


def test_a_test_after_a_fit_keeps_how_the_fit_ended(pl) -> None:
    """A test goes on in the run of the fit and does not turn an early stop into a completion."""
    callback = CostLensCallback("fit and test")

    class Stopper(pl.Callback):
        def on_train_batch_end(self, trainer, *_) -> None:
            trainer.should_stop = True

    module = make_module(pl)
    trainer = make_trainer(pl, callback, Stopper(), max_epochs=5)
    trainer.fit(module, rows(10))
    trainer.test(module, rows(2), verbose=False)
    record = record_of(callback)
    assert record.attempt.outcome is Outcome.STOPPED_EARLY
    assert (record.progress.iterations, record.progress.test_batches) == (1, 2)


def test_overfitting_on_purpose_is_a_debug_run(pl) -> None:
    """C125: `overfit_batches=2` for 3 epochs: 6 steps, 6 batches of validation, marked debug."""
    record = fit(
        pl,
        make_module(pl),
        rows(10),
        rows(10),
        max_epochs=3,
        overfit_batches=2,
        num_sanity_val_steps=2,
    )
    assert record.progress.optimizer_steps == 6
    assert record.progress.validation_batches == 6
    assert record.run.debug == "overfit_batches=2"


@pytest.mark.filterwarnings("ignore:.*`logger=True` will use:UserWarning")
def test_a_fast_dev_run_is_a_debug_run_of_its_own(pl, monkeypatch) -> None:
    """C127: `fast_dev_run` makes 1 batch of each, marked debug, outside the real run's totals."""
    monkeypatch.setenv("COSTLENS_RUN_ID", "the-real-one")
    callback = CostLensCallback("real")
    make_trainer(pl, callback, fast_dev_run=True).fit(make_module(pl), rows(10), rows(10))
    debug = record_of(callback)
    assert (debug.progress.iterations, debug.progress.validation_batches) == (1, 1)
    assert debug.run.debug == "fast_dev_run=True"
    make_trainer(pl, callback, max_epochs=1).fit(make_module(pl), rows(10))
    real = record_of(callback)
    assert (real.run.id, real.run.debug) == ("the-real-one", None)
    assert debug.run.id != real.run.id
    assert real.progress.iterations == 10


def test_two_callbacks_of_different_names_feed_two_runs(pl, written, capsys) -> None:
    """C126: both count everything once, the Trainer accepts both, each has its own log."""
    first, second = CostLensCallback("first"), CostLensCallback("second")
    assert first.state_key != second.state_key
    trainer = make_trainer(pl, first, second, max_epochs=2)
    profiler = trainer.profiler
    module = make_module(pl, step=lambda loss, at: loss * math.nan if at == 3 else None)
    trainer.fit(module, rows(5), rows(2))
    assert trainer.profiler is profiler
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line[:1] == "{"]
    told = [(line["run_id"], line["iteration"]) for line in lines if line["metric"] == "loss"]
    assert sorted(told) == sorted([(first.run.id, 3), (second.run.id, 3)])
    for callback in (first, second):
        record = record_of(callback)
        assert (record.progress.iterations, record.progress.optimizer_steps) == (10, 10)
        assert (record.progress.samples, record.progress.validation_batches) == (10, 4)
        assert record.time_ns["forward"] > 0
        assert record.time_ns["validation"] > 0
    assert {each["run"]["name"] for each in written()} == {"first", "second"}


def test_an_accidental_duplicate_is_told_and_inert(pl, written, capsys) -> None:
    """C126: a second callback of the same name gives one message, and nothing counts twice."""
    first, second = CostLensCallback("same"), CostLensCallback("same")
    trainer = make_trainer(pl, first, second, max_epochs=1)
    trainer.fit(make_module(pl), rows(5))
    assert record_of(first).progress.iterations == 5
    assert second.run.finish() is None
    assert capsys.readouterr().err.count("costlens.callback.duplicate") == 1
    assert len(written()) == 1


def test_the_same_callback_twice_counts_once(pl) -> None:
    """C126: the same instance twice in the list is watched once."""
    callback = CostLensCallback("one")
    trainer = make_trainer(pl, callback, callback, max_epochs=1)
    profiler = trainer.profiler
    trainer.fit(make_module(pl), rows(5), rows(2))
    record = record_of(callback)
    progress = record.progress
    assert (progress.iterations, progress.samples, progress.optimizer_steps) == (5, 5, 5)
    assert progress.validation_batches == 2
    assert trainer.profiler is profiler


def test_a_callback_that_is_switched_off_changes_nothing(pl, written, monkeypatch) -> None:
    """`COSTLENS_ENABLED=0` leaves profiler, loops and disk alone."""
    monkeypatch.setenv("COSTLENS_ENABLED", "0")
    callback, seen = CostLensCallback("off"), []

    class Reader(pl.Callback):
        def on_train_start(self, trainer, module) -> None:
            seen.append(type(trainer.profiler).__name__)
            seen.append("run" in vars(trainer.fit_loop.epoch_loop.val_loop))

    make_trainer(pl, callback, Reader(), max_epochs=1).fit(make_module(pl), rows(3), rows(1))
    assert seen == ["PassThroughProfiler", False]
    assert callback.run.finish() is None
    assert written() == []


@pytest.fixture
def unharmed(monkeypatch):
    """Let faults be contained as they are outside of tests, and return their counts."""
    counted = {}
    monkeypatch.setattr(faults, "strict", False)
    monkeypatch.setattr(faults, "counts", counted)
    return counted


def test_a_count_that_fails_harms_nothing(pl, unharmed, capsys) -> None:
    """A user's `tokens=` that raises is contained, counted and leaves the rest as it is.

    What it says may be data, and is not repeated.
    """

    def count(batch) -> int:
        raise LookupError(f"patient 4711 in {batch}")

    callback = CostLensCallback("failing", tokens=count)
    make_trainer(pl, callback, max_epochs=1).fit(make_module(pl), rows(5))
    record = callback.run.finish()
    assert (record.progress.iterations, record.progress.optimizer_steps) == (5, 5)
    assert record.progress.tokens is None
    assert record.quality["loss"].num_values == 5
    assert record.telemetry.faults == unharmed == {"lightning.batch": 5}
    told = capsys.readouterr().err
    assert "LookupError" in told
    assert "test_cases_lifecycle.py" in told
    assert "4711" not in told


@pytest.mark.parametrize(
    ("module", "broken"),
    [(facts, "describe_debug"), (facts, "iterate_evaluations"), (states, "is_stopped_early")],
)
def test_a_fault_of_ours_harms_nothing(pl, unharmed, monkeypatch, module, broken) -> None:
    """Whatever fails in set-up or at the end, the training ends well and everything is restored."""

    def fail(*_) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(module, broken, fail)
    trainer = make_trainer(pl, CostLensCallback("broken"), max_epochs=1)
    profiler = trainer.profiler
    trainer.fit(make_module(pl), rows(5), rows(2))
    assert trainer.global_step == 5
    assert trainer.profiler is profiler
    assert not {"process_dataloader", "load_checkpoint"} & vars(trainer.strategy).keys()
    assert sum(unharmed.values()) == 1


def test_a_trainer_inside_a_hook_is_not_mixed_in(pl) -> None:
    """A hook that trains something else with the same callback does not disturb the run."""
    callback = CostLensCallback("outer")

    class Nesting(pl.Callback):
        def on_train_epoch_end(self, trainer, module) -> None:
            make_trainer(pl, callback, max_epochs=1).fit(make_module(pl), rows(7))

    make_trainer(pl, callback, Nesting(), max_epochs=2).fit(make_module(pl), rows(3))
    record = record_of(callback)
    assert record.progress.iterations == 6
    assert record.attempt.outcome is Outcome.COMPLETED


@pytest.mark.parametrize(("save_at", "num_lost"), [(None, 6), (3, 2)])
def test_a_crash_loses_what_no_save_holds(pl, tmp_path, save_at, num_lost) -> None:
    """A crash in the seventh batch, saved after the fourth or never: two steps are lost, or six."""

    class Saver(pl.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx) -> None:
            if batch_idx == save_at:
                trainer.save_checkpoint(tmp_path / "saved.ckpt")

    def step(_, at) -> None:
        if at == 6:
            raise RuntimeError("planted")

    callback = CostLensCallback("crash")
    module = make_module(pl, step=step)
    with pytest.raises(RuntimeError, match="planted"):
        make_trainer(pl, callback, Saver(), max_epochs=1).fit(module, rows(10))
    record = record_of(callback)
    assert record.attempt.saved_step == (0 if save_at is None else save_at + 1)
    progress = merge([record], now=record.attempt.heartbeat_time).progress
    assert (progress.optimizer_steps, progress.lost_steps) == (6, num_lost)


def test_a_spent_budget_ends_the_fit_at_a_step(pl, monkeypatch) -> None:
    """The Trainer is asked to stop as early stopping would, and the record says why."""
    monkeypatch.setenv("COSTLENS_BUDGET_ACTION", "stop")
    monkeypatch.setenv("COSTLENS_WINDOW_S", "0.05")
    monkeypatch.setenv("COSTLENS_NODE_HOUR_PRICE", "3600")
    callback = CostLensCallback("budget", budget="0.01")
    make_trainer(pl, callback, max_epochs=100_000).fit(make_module(pl), rows(10))
    record = record_of(callback)
    assert (record.attempt.outcome, record.attempt.end_reason) == (Outcome.STOPPED_EARLY, "budget")
    assert record.budget.share > 1
    assert record.progress.optimizer_steps < 1_000_000


def test_ranks_that_cannot_agree_are_refused_before_the_fit(pl, monkeypatch) -> None:
    """Two ranks without a process group: a stop of one would leave the other waiting."""
    monkeypatch.setenv("COSTLENS_BUDGET_ACTION", "stop")
    callback = CostLensCallback("budget", budget=5)
    trainer = make_trainer(pl, callback, max_epochs=1)
    monkeypatch.setattr(type(trainer), "world_size", 2)
    with pytest.raises(ConfigError, match="COSTLENS_BUDGET_ACTION=warn"):
        trainer.fit(make_module(pl), rows(10))
