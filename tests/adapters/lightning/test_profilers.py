"""The user's profiler goes on working behind the brackets, and is back when they are gone."""

from __future__ import annotations

import importlib
from contextlib import contextmanager
from types import ModuleType

import pytest

from costlens.lightning import CostLensCallback
from tests.adapters.lightning.jobs import make_module, make_trainer, record_of, rows


def _profilers(pl: ModuleType) -> ModuleType:
    return importlib.import_module(f"{pl.__name__}.profilers")


def _kinds(pl: ModuleType, name: str):
    return getattr(_profilers(pl), name)()


def _crash(_, at) -> None:
    if at == 2:
        raise RuntimeError("planted")


@pytest.mark.parametrize("name", ["PassThroughProfiler", "SimpleProfiler", "AdvancedProfiler"])
def test_the_profiler_is_back_after_a_fit(each_pl, name) -> None:
    """`trainer.profiler` and the loops are the same objects after a fit as before it."""
    profiler = _kinds(each_pl, name)
    trainer = make_trainer(each_pl, CostLensCallback("kept"), max_epochs=1, profiler=profiler)
    trainer.fit(make_module(each_pl), rows(4), rows(2))
    assert trainer.profiler is profiler
    assert "run" not in vars(trainer.fit_loop.epoch_loop.val_loop)
    assert not {"process_dataloader", "load_checkpoint"} & vars(trainer.strategy).keys()


@pytest.mark.parametrize("name", ["PassThroughProfiler", "SimpleProfiler", "AdvancedProfiler"])
def test_the_profiler_is_back_after_a_crash(pl, name) -> None:
    """An exception skips `teardown`; everything is restored all the same."""
    profiler = _kinds(pl, name)
    trainer = make_trainer(pl, CostLensCallback("kept"), max_epochs=1, profiler=profiler)
    with pytest.raises(RuntimeError, match="planted"):
        trainer.fit(make_module(pl, step=_crash), rows(4), rows(2))
    assert trainer.profiler is profiler
    assert "run" not in vars(trainer.fit_loop.epoch_loop.val_loop)
    assert not {"process_dataloader", "load_checkpoint"} & vars(trainer.strategy).keys()


@pytest.mark.parametrize("num_manual", [0, 1])
def test_a_simple_profiler_records_what_it_would_alone(pl, num_manual) -> None:
    """The same actions, as often, with costlens and without; and both see the training."""

    def profile(*callbacks) -> dict[str, int]:
        profiler = _profilers(pl).SimpleProfiler()
        module = make_module(pl, num_manual=num_manual)
        trainer = make_trainer(pl, *callbacks, max_epochs=2, profiler=profiler)
        trainer.fit(module, rows(4), rows(2))
        assert "run_training_epoch" in profiler.summary()
        assert not profiler.current_actions
        return {
            action: len(durations)
            for action, durations in profiler.recorded_durations.items()
            if "CostLensCallback" not in action
        }

    callback = CostLensCallback("both")
    assert profile(callback) == profile()
    record = record_of(callback)
    assert record.progress.iterations == 8
    assert record.time_ns["forward"] > 0
    assert record.time_ns["data_wait"] > 0


def test_inside_a_fit_the_profiler_is_still_the_users(pl) -> None:
    """Hooks reach every attribute, may set one, use the methods and ask for the type."""
    simple = _profilers(pl).SimpleProfiler

    class Using(pl.Callback):
        def on_train_batch_end(self, trainer, *_) -> None:
            assert isinstance(trainer.profiler, simple)
            assert trainer.profiler.extended is True
            trainer.profiler.mine = trainer.global_step
            trainer.profiler.start("a")
            trainer.profiler.stop("a")
            with trainer.profiler.profile("b") as name, trainer.profiler.profile("c"):
                assert name == "b"
            assert "recorded_durations" in dir(trainer.profiler)

    profiler = simple()
    callback = CostLensCallback("used")
    make_trainer(pl, callback, Using(), max_epochs=1, profiler=profiler).fit(
        make_module(pl), rows(4)
    )
    assert profiler.mine == 4
    assert [len(profiler.recorded_durations[name]) for name in "abc"] == [4, 4, 4]
    assert record_of(callback).progress.iterations == 4


def test_a_profiler_with_brackets_of_its_own_keeps_them(pl) -> None:
    """Where `profile` itself is the user's, it is called, and gives what it gives."""
    opened, closed, entered = [], [], []

    class Own(_profilers(pl).Profiler):
        def start(self, action_name) -> None:
            return None

        def stop(self, action_name) -> None:
            return None

        @contextmanager
        def profile(self, action_name):
            opened.append(action_name)
            yield 42
            closed.append(action_name)

    class Using(pl.Callback):
        def on_train_epoch_end(self, trainer, *_) -> None:
            with trainer.profiler.profile("mine") as given:
                entered.append(given)

    callback = CostLensCallback("own")
    trainer = make_trainer(pl, callback, Using(), max_epochs=1, profiler=Own())
    trainer.fit(make_module(pl), rows(4))
    assert entered == [42]
    assert opened.count("run_training_batch") == closed.count("run_training_batch") == 4
    assert len(opened) == len(closed)
    assert record_of(callback).progress.iterations == 4


def test_a_profilers_report_is_written(pl, tmp_path) -> None:
    """`describe` at the end of the fit writes the user's report where it was asked for."""
    profiler = _profilers(pl).SimpleProfiler(dirpath=tmp_path, filename="report")
    trainer = make_trainer(pl, CostLensCallback("report"), max_epochs=1, profiler=profiler)
    trainer.fit(make_module(pl), rows(4))
    assert "run_training_batch" in (tmp_path / "fit-report.txt").read_text(encoding="utf-8")


def test_a_profiler_that_the_user_puts_in_its_place_stays(pl) -> None:
    """Whoever replaces the profiler during a fit keeps the replacement: nothing is fought over."""
    replacement = _profilers(pl).SimpleProfiler()

    class Replacing(pl.Callback):
        def on_train_start(self, trainer, *_) -> None:
            trainer.profiler = replacement

    callback = CostLensCallback("replaced")
    trainer = make_trainer(pl, callback, Replacing(), max_epochs=1)
    trainer.fit(make_module(pl), rows(4))
    assert trainer.profiler is replacement
    assert replacement.recorded_durations
    assert record_of(callback).progress.optimizer_steps == 4


def test_hooks_of_other_callbacks_come_in_the_same_order(pl) -> None:
    """What other callbacks see, and when, is the same with costlens and without."""

    def hooks(*callbacks) -> list[str]:
        seen: list[str] = []

        def noting(name: str):
            return lambda *_, **__: seen.append(name)

        names = [name for name in dir(pl.Callback) if name.startswith(("on_", "setup", "teardown"))]
        kinds = [
            type(f"Noting{index}", (pl.Callback,), {n: noting(f"{index}.{n}") for n in names})
            for index in range(2)
        ]
        trainer = make_trainer(
            pl, kinds[0](), *callbacks, kinds[1](), max_epochs=2, num_sanity_val_steps=1
        )
        trainer.fit(make_module(pl), rows(4), rows(2))
        return seen

    assert hooks(CostLensCallback("between")) == hooks()
