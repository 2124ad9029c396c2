"""One callback for both Lightning packages, given or attached on its own."""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
from importlib.metadata import EntryPoint, entry_points

import pytest

from costlens.lightning import CostLensCallback, autoattach_callbacks
from tests.adapters.lightning.jobs import make_module, make_trainer, record_of, rows


def _run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_it_is_a_callback_of_each_loaded_package(each_pl) -> None:
    """Lightning accepts it alone as well as in a list, and counts come out of either package."""
    callback = CostLensCallback("namespaces")
    assert isinstance(callback, each_pl.Callback)
    assert isinstance(callback, CostLensCallback)
    trainer = make_trainer(each_pl, max_epochs=1)
    alone = each_pl.Trainer(
        accelerator="cpu",
        callbacks=callback,
        enable_checkpointing=False,
        enable_progress_bar=False,
        logger=False,
        max_epochs=1,
    )
    assert callback in alone.callbacks
    trainer.callbacks.append(callback)
    trainer.fit(make_module(each_pl), rows(4), rows(2))
    record = record_of(callback)
    assert (record.progress.iterations, record.progress.validation_batches) == (4, 2)
    assert (
        record.run.framework
        == f"lightning {importlib.import_module(each_pl.__name__.partition('.')[0]).__version__}"
    )


def test_importing_the_door_loads_no_lightning() -> None:
    """The import is light: neither package, nor torch, nor a run's side effects."""
    code = (
        "import sys, costlens.lightning\n"
        "print([n for n in ('lightning', 'pytorch_lightning', 'torch') if n in sys.modules])"
    )
    assert _run(code) == "[]"


@pytest.mark.slow
@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_only_the_package_in_use_is_loaded(package) -> None:
    """A callback for one package does not load the other, whichever is imported first."""
    other = {"lightning.pytorch": "pytorch_lightning", "pytorch_lightning": "lightning"}[package]
    code = (
        "import sys\n"
        "from costlens.lightning import CostLensCallback\n"
        f"import {package} as pl\n"
        "assert isinstance(CostLensCallback(), pl.Callback)\n"
        f"print({other!r} in sys.modules)"
    )
    assert _run(code) == "False"


def test_without_lightning_the_message_says_what_to_install(monkeypatch) -> None:
    """A missing package is named with the command that installs it."""
    for name in ("lightning.pytorch", "lightning", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"pip install 'costlens\[lightning\]'"):
        CostLensCallback()


def test_hooks_that_are_not_needed_are_none(each_pl) -> None:
    """Lightning passes over a hook that is None, so none of ours runs per batch but one."""
    per_batch = {
        name
        for name in dir(each_pl.Callback)
        if name.startswith("on_") and ("batch" in name or "backward" in name or "zero_grad" in name)
    }
    callback = CostLensCallback("lean")
    assert {name for name in per_batch if getattr(callback, name) is not None} == {
        "on_train_batch_end"
    }
    assert callback.on_before_optimizer_step is None


GROUPS = {
    "pytorch_lightning": "pytorch_lightning.callbacks_factory",
    "lightning.pytorch": "lightning.pytorch.callbacks_factory",
}


@pytest.fixture
def registered(each_pl, monkeypatch) -> None:
    """Let the package's Trainers find our factory as an installed package would offer it."""
    group = GROUPS[each_pl.__name__]
    point = EntryPoint("costlens", "costlens.lightning:autoattach_callbacks", group)
    root = "lightning.fabric" if each_pl.__name__ == "lightning.pytorch" else "lightning_fabric"
    registry = importlib.import_module(f"{root}.utilities.registry")
    plain = entry_points

    def found(**query):
        others = [each for each in plain(**query) if each.name != "costlens"]
        return [*others, point] if query.get("group") == group else others

    monkeypatch.setattr(registry, "entry_points", found)


def _automatic(trainer) -> list[CostLensCallback]:
    return [each for each in trainer.callbacks if isinstance(each, CostLensCallback)]


@pytest.mark.usefixtures("registered")
def test_a_trainer_is_watched_without_a_line_of_code(each_pl, monkeypatch) -> None:
    """`COSTLENS_AUTOATTACH=1` adds a callback to every Trainer."""
    monkeypatch.setenv("COSTLENS_AUTOATTACH", "1")
    trainer = make_trainer(each_pl, max_epochs=1)
    trainer.fit(make_module(each_pl), rows(4))
    (callback,) = _automatic(trainer)
    assert record_of(callback).progress.iterations == 4


@pytest.mark.usefixtures("registered")
def test_nobody_is_watched_who_did_not_ask(each_pl) -> None:
    """Without the variable every Trainer is left alone."""
    assert _automatic(make_trainer(each_pl)) == []


@pytest.mark.usefixtures("registered")
def test_beside_an_explicit_callback_the_automatic_one_is_inert(
    each_pl, monkeypatch, written, capsys
) -> None:
    """Both may be there, of one name even; only the explicit one counts, and no warning is due."""
    monkeypatch.setenv("COSTLENS_AUTOATTACH", "1")
    explicit = CostLensCallback()
    trainer = make_trainer(each_pl, explicit, max_epochs=1)
    trainer.fit(make_module(each_pl), rows(4))
    first, automatic = _automatic(trainer)
    assert first is explicit
    assert automatic.state_key != explicit.state_key
    assert record_of(explicit).progress.iterations == 4
    assert automatic.run.finish() is None
    assert len(written()) == 1
    assert "duplicate" not in capsys.readouterr().err


def test_a_wrong_setting_is_told_and_stops_no_trainer(monkeypatch, capsys) -> None:
    """The factory runs in every Trainer of the process, so it logs what it cannot use."""
    monkeypatch.setenv("COSTLENS_AUTOATTACH", "1")
    monkeypatch.setenv("COSTLENS_GPU_HOUR_PRICE", "cheap")
    assert autoattach_callbacks() == []
    assert "COSTLENS_GPU_HOUR_PRICE" in capsys.readouterr().err


def test_a_wrong_argument_is_refused_at_once(pl) -> None:
    """The user asked for it, so the user hears of it, where the callback is made."""
    with pytest.raises(ValueError, match="gpu_hour_price"):
        CostLensCallback(gpu_hour_price=-1)


def test_arguments_come_before_settings(pl, monkeypatch) -> None:
    """What is given to the callback wins over the environment."""
    monkeypatch.setenv("COSTLENS_NAME", "from the environment")
    monkeypatch.setenv("COSTLENS_NODE_HOUR_PRICE", "3")
    callback = CostLensCallback("given")
    make_trainer(pl, callback, max_epochs=1).fit(make_module(pl), rows(2))
    record = record_of(callback)
    assert record.run.name == "given"
    assert record.price is not None
    assert record.price.amount == "3"


def test_rates_and_cost_go_to_the_trainers_loggers(pl, monkeypatch) -> None:
    """`log_to_trainer=True` logs the newest window's numbers at the global step."""
    monkeypatch.setenv("COSTLENS_WINDOW_S", "0.05")
    monkeypatch.setenv("COSTLENS_NODE_HOUR_PRICE", "3600")
    logged = []
    base = importlib.import_module(f"{pl.__name__}.loggers").Logger

    class Noting(base):
        name, version = "noting", "0"

        def log_metrics(self, metrics, step=None) -> None:
            logged.append((metrics, step))

        def log_hyperparams(self, *_, **__) -> None:
            return None

    callback = CostLensCallback("logged", log_to_trainer=True)
    trainer = make_trainer(pl, callback, max_epochs=1, logger=Noting())
    trainer.fit(make_module(pl, step=lambda *_: time.sleep(0.02)), rows(100, 2))
    ours = [(metrics, step) for metrics, step in logged if "costlens/samples_per_s" in metrics]
    assert ours
    metrics, step = ours[-1]
    assert metrics["costlens/samples_per_s"] > 0
    assert metrics["costlens/cost"] > 0
    assert 0 < step <= 50
