"""Beside Lightning's own callbacks, loggers and tuners the counts stay right."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from costlens.core.records import Outcome
from costlens.lightning import CostLensCallback
from tests.adapters.lightning.jobs import fit, make_module, make_trainer, record_of, rows, seconds


def test_lightnings_own_callbacks_change_no_count(pl, tmp_path: Path) -> None:
    """Saving, stopping, averaging, a bar, a monitor and a timer beside it: the usual company."""
    callbacks = importlib.import_module(f"{pl.__name__}.callbacks")
    loggers = importlib.import_module(f"{pl.__name__}.loggers")
    record = fit(
        pl,
        make_module(pl),
        rows(12, 2),
        rows(4),
        others=[
            callbacks.ModelCheckpoint(
                dirpath=tmp_path / "checkpoints", monitor="val_loss", save_last=True
            ),
            callbacks.EarlyStopping(monitor="val_loss", patience=50),
            callbacks.LearningRateMonitor(),
            callbacks.TQDMProgressBar(),
            callbacks.ModelSummary(),
            callbacks.StochasticWeightAveraging(swa_lrs=0.01, swa_epoch_start=1),
            callbacks.Timer(duration="00:01:00:00"),
        ],
        default_root_dir=tmp_path,
        enable_checkpointing=True,
        enable_model_summary=True,
        enable_progress_bar=True,
        logger=loggers.CSVLogger(tmp_path),
        max_epochs=3,
        num_sanity_val_steps=1,
    )
    progress = record.progress
    assert (progress.iterations, progress.optimizer_steps, progress.samples) == (18, 18, 36)
    assert progress.validation_batches == 12
    assert record.attempt.outcome is Outcome.COMPLETED
    assert seconds(record)["checkpoint"] > 0
    assert record.quality["val_loss"].num_values == 3


def test_what_a_tuner_tries_is_start_up_and_counts_nothing(pl, tmp_path: Path) -> None:
    """The learning rate finder trains in a hook before the training: those are no iterations."""
    callbacks = importlib.import_module(f"{pl.__name__}.callbacks")
    module = make_module(pl)
    module.lr = 0.01
    callback = CostLensCallback("tuned")
    trainer = make_trainer(
        pl,
        callback,
        callbacks.LearningRateFinder(num_training_steps=10),
        default_root_dir=tmp_path,
        max_epochs=1,
    )
    profiler = trainer.profiler
    trainer.fit(module, rows(6, 2))
    record = record_of(callback)
    assert (record.progress.iterations, record.progress.optimizer_steps) == (3, 3)
    assert (record.progress.micro_batches, record.progress.samples) == (3, 6)
    assert trainer.profiler is profiler


def test_accumulation_that_changes_with_the_epoch_is_observed(pl) -> None:
    """Under a schedule of accumulation steps are what happened, and no total is promised."""
    callbacks = importlib.import_module(f"{pl.__name__}.callbacks")
    schedule = callbacks.GradientAccumulationScheduler(scheduling={0: 1, 1: 3})
    module = make_module(pl, step=lambda loss, _: loss * 0 + 2.0)
    record = fit(pl, module, rows(6), others=[schedule], max_epochs=2)
    progress = record.progress
    assert (progress.iterations, progress.optimizer_steps) == (12, 8)
    assert progress.total_steps is None
    assert record.quality["loss"].mean == pytest.approx(2.0)


def test_a_module_without_an_optimizer_makes_no_steps(pl) -> None:
    """Lightning puts a stand-in where a module has no optimizer; its steps change nothing."""
    module = make_module(pl, configure_optimizers=lambda: None)
    with pytest.warns(UserWarning, match="fit will run with no optimizer"):
        record = fit(pl, module, rows(4), max_epochs=1)
    assert (record.progress.iterations, record.progress.optimizer_steps) == (4, 0)


def test_an_optimizer_that_tells_nothing_is_counted_by_the_trainer(pl, monkeypatch) -> None:
    """Where an optimizer offers no hook, the Trainer's own step is the count."""
    from costlens.observe.trainer import facts

    class Silent:
        def __init__(self, optimizer) -> None:
            self.param_groups = optimizer.param_groups

    plain = facts.real_optimizers
    monkeypatch.setattr(
        facts, "real_optimizers", lambda trainer: [Silent(each) for each in plain(trainer)]
    )
    record = fit(pl, make_module(pl), rows(8), max_epochs=1, accumulate_grad_batches=2)
    assert (record.progress.iterations, record.progress.optimizer_steps) == (8, 4)


@pytest.mark.filterwarnings("ignore:train_dataloader yielded None:UserWarning")
def test_a_batch_of_none_is_an_iteration_without_a_step(pl) -> None:
    """A loader that yields None makes Lightning pass over the batch; nothing of ours fails."""
    from torch.utils.data import DataLoader

    loader = DataLoader([None, None], batch_size=None)
    progress = fit(pl, make_module(pl), loader, max_epochs=1).progress
    assert (progress.iterations, progress.micro_batches, progress.optimizer_steps) == (2, 0, 0)
    assert progress.samples is None


def test_the_rest_of_an_epoch_that_is_left_out_counts_nothing(pl) -> None:
    """A module may end an epoch before a batch; that batch is fetched and not trained on."""
    module = make_module(pl, on_train_batch_start=lambda _, at: -1 if at == 2 else None)
    progress = fit(pl, module, rows(10), max_epochs=2).progress
    assert (progress.iterations, progress.optimizer_steps, progress.samples) == (4, 4, 4)


@pytest.mark.slow
def test_torchs_own_profiler_works_behind(pl, tmp_path: Path) -> None:
    """The profiler that records operations of torch sees the brackets it needs."""
    profilers = importlib.import_module(f"{pl.__name__}.profilers")
    profiler = profilers.PyTorchProfiler(
        dirpath=tmp_path,
        filename="torch",
        export_to_chrome=False,
        record_module_names=False,
        row_limit=100,
    )
    record = fit(pl, make_module(pl), rows(8), max_epochs=1, profiler=profiler)
    assert record.progress.iterations == 8
    assert "[pl][profile]run_training_batch" in (tmp_path / "fit-torch.txt").read_text(
        encoding="utf-8"
    )
