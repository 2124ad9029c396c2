"""Which phase gets the time: one delay is planted at a time, on a clock that stands still else."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

from costlens.lightning import CostLensCallback
from tests.adapters.lightning.jobs import (
    NS_PER_S,
    Plant,
    Stream,
    fit,
    make_module,
    make_trainer,
    record_of,
    rows,
    seconds,
)


class _Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value, plant):
        ctx.plant = plant
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        ctx.plant()
        return gradient, None


def _slow_optimizer(plant: Plant):
    class Slow(torch.optim.SGD):
        @torch.no_grad()
        def step(self, closure=None):
            loss = None
            if closure is not None:
                with torch.enable_grad():
                    loss = closure()
            plant()
            super().step()
            return loss

    return Slow


@pytest.mark.parametrize("accumulation", [1, 4])
def test_forward(pl, clock, accumulation) -> None:
    """The training step is forward, whether its gradients are accumulated or not."""
    plant = Plant(clock)
    module = make_module(pl, step=plant)
    record = fit(pl, module, rows(8), max_epochs=1, accumulate_grad_batches=accumulation)
    assert seconds(record) == {"forward": 7}


@pytest.mark.parametrize("accumulation", [1, 4])
def test_backward(pl, clock, accumulation) -> None:
    """What autograd does is backward, whether its gradients are accumulated or not."""
    plant = Plant(clock)
    module = make_module(pl, step=lambda loss, _: _Slow.apply(loss, plant))
    record = fit(pl, module, rows(8), max_epochs=1, accumulate_grad_batches=accumulation)
    assert seconds(record) == {"backward": 7}


def test_optimizer(pl, clock) -> None:
    """The update is optimizer, though the training step runs inside of it as a closure."""
    plant = Plant(clock)
    module = make_module(pl)
    module.configure_optimizers = lambda: _slow_optimizer(plant)(module.parameters(), lr=0.01)
    assert seconds(fit(pl, module, rows(8), max_epochs=1)) == {"optimizer": 7}


@pytest.mark.parametrize("part", ["forward", "backward", "optimizer"])
def test_manual_optimization(pl, clock, part) -> None:
    """A module that optimizes for itself is split into the same three."""
    plant = Plant(clock)
    module = make_module(pl, num_manual=1)
    if part == "forward":
        module.loss = lambda batch, plain=module.loss: (plant(), plain(batch))[1]
    elif part == "backward":
        module.loss = lambda batch, plain=module.loss: _Slow.apply(plain(batch), plant)
    else:
        module.configure_optimizers = lambda: _slow_optimizer(plant)(module.parameters(), lr=0.01)
    record = fit(pl, module, rows(8), max_epochs=1)
    # The module computes its loss twice a batch.
    assert seconds(record) == {part: 14 if part == "forward" else 7}


def test_transfer(pl, clock) -> None:
    """Moving a batch is transfer, the user's own way of moving it included."""
    plant = Plant(clock)
    module = make_module(pl, on_after_batch_transfer=lambda batch, _: (plant(), batch)[1])
    assert seconds(fit(pl, module, rows(8), max_epochs=1)) == {"transfer": 7}


def test_data_wait_of_a_loader_without_length(pl, clock) -> None:
    """A loader without length is read one batch ahead; its waits are data wait all the same."""
    plant = Plant(clock)

    class Slow(Stream):
        def __iter__(self):
            for row in super().__iter__():
                plant()
                yield row

    record = fit(pl, make_module(pl), DataLoader(Slow(8), batch_size=1), max_epochs=1)
    # The first two are read before the first step has ended.
    assert seconds(record) == {"data_wait": 6}


@pytest.mark.filterwarnings("ignore:Found `dataloader_iter` argument:UserWarning")
def test_data_wait_of_a_step_that_fetches_for_itself(pl, clock) -> None:
    """A training step that takes the iterator waits for data inside, and counts right."""
    plant = Plant(clock)

    class Fetching(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 2)

        def training_step(self, dataloader_iter):
            batch, _, _ = next(dataloader_iter)
            return self.layer(batch).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    record = fit(pl, Fetching(), rows(8, 2, read=plant), max_epochs=1)
    assert seconds(record) == {"data_wait": 6}
    progress = record.progress
    assert (progress.iterations, progress.micro_batches, progress.samples) == (4, 4, 8)


def test_callbacks(pl, clock) -> None:
    """Other callbacks' hooks are callbacks, before and after ours, around a batch and an epoch."""
    plant = Plant(clock)

    class Slow(pl.Callback):
        def on_train_batch_start(self, *_) -> None:
            plant()

        def on_train_batch_end(self, *_) -> None:
            plant()

        def on_train_epoch_end(self, *_) -> None:
            plant()

    class Also(Slow):
        pass

    callback = CostLensCallback("between")
    trainer = make_trainer(pl, Slow(), callback, Also(), max_epochs=2)
    trainer.fit(make_module(pl), rows(4))
    # Two callbacks, two hooks a batch and one an epoch; those of the first batch are start-up.
    assert seconds(record_of(callback)) == {"callbacks": 2 * (2 * 7 + 2)}


def test_a_modules_own_hooks_are_callbacks(pl, clock) -> None:
    """What a module does in hooks of its own is no bookkeeping of the loop."""
    plant = Plant(clock)
    module = make_module(
        pl, on_train_batch_end=plant, on_after_backward=plant, on_before_backward=plant
    )
    assert seconds(fit(pl, module, rows(6), max_epochs=1)) == {"callbacks": 15}


def test_logging(pl, clock) -> None:
    """What loggers do after a batch is logging."""
    plant = Plant(clock)
    base = importlib.import_module(f"{pl.__name__}.loggers").Logger

    class Slow(base):
        name, version = "slow", "0"

        def log_metrics(self, metrics, step=None) -> None:
            plant()

        def log_hyperparams(self, *_, **__) -> None:
            return None

    module = make_module(pl, step=lambda loss, _: module.log("train", loss))
    record = fit(pl, module, rows(8), max_epochs=1, logger=Slow(), log_every_n_steps=1)
    assert seconds(record) == {"logging": 7}


@pytest.mark.parametrize("moment", ["on_train_batch_end", "on_validation_end"])
def test_checkpoint(pl, clock, tmp_path, moment) -> None:
    """A save is checkpoint in a callback, in the gap after a batch and in a validation."""
    plant = Plant(clock)

    class Saving(pl.Callback):
        def on_save_checkpoint(self, *_) -> None:
            plant()

    def save(self, trainer, *_) -> None:
        trainer.save_checkpoint(tmp_path / "saved.ckpt")

    setattr(Saving, moment, save)
    record = fit(pl, make_module(pl), rows(4), rows(1), others=[Saving()], max_epochs=2)
    # A save in start-up is a checkpoint as well.
    assert seconds(record) == {"checkpoint": plant.num_calls}


def test_restore(pl, clock, tmp_path) -> None:
    """Reading a checkpoint is restore, and the steps go on from where it was made."""
    path = tmp_path / "saved.ckpt"
    trainer = make_trainer(pl, max_epochs=1)
    trainer.fit(make_module(pl), rows(5))
    trainer.save_checkpoint(path)
    plant = Plant(clock)
    callback = CostLensCallback("resumed")
    trainer = make_trainer(pl, callback, max_epochs=2)
    plain = trainer.strategy.load_checkpoint
    trainer.strategy.load_checkpoint = lambda *args, **kwargs: (plant(), plain(*args, **kwargs))[1]
    trainer.fit(make_module(pl), rows(5), ckpt_path=path)
    record = record_of(callback)
    assert seconds(record) == {"restore": 1}
    attempt = record.attempt
    assert (attempt.start_step, attempt.end_step, record.progress.iterations) == (5, 10, 5)
    assert record.progress.total_steps == 10


def test_several_validation_loaders(pl, clock) -> None:
    """All loaders of a validation are validation, several times an epoch."""
    plant = Plant(clock)
    module = make_module(pl, validation=plant)
    record = fit(pl, module, rows(6), [rows(2), rows(3)], max_epochs=1, val_check_interval=2)
    assert seconds(record) == {"validation": 15}
    assert record.progress.validation_batches == 15


def test_the_end_of_a_training_is_shutdown(pl, clock) -> None:
    """What comes after the last hook of the training is neither training nor bookkeeping."""
    plant = Plant(clock)

    class Slow(pl.Callback):
        def on_fit_end(self, *_) -> None:
            plant()

    record = fit(pl, make_module(pl), rows(2), others=[Slow()], max_epochs=1)
    assert seconds(record) == {"shutdown": 1}


def test_an_exception_that_a_step_survives_leaves_nothing_open(pl, clock) -> None:
    """A step that catches what its backward pass raised does not shift what follows."""
    later = Plant(clock)

    class Failing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, value):
            return value.clone()

        @staticmethod
        def backward(ctx, gradient):
            raise RuntimeError("planted")

    class Surviving(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False
            self.layer = torch.nn.Linear(4, 2)

        def training_step(self, batch, batch_idx) -> None:
            try:
                self.manual_backward(Failing.apply(self.layer(batch).mean()))
            except RuntimeError:
                return

        def on_train_batch_end(self, *_) -> None:
            later()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    callback = CostLensCallback("survives")
    depths = []

    class Reader(pl.Callback):
        def on_train_epoch_end(self, *_) -> None:
            depths.append(callback.run.parts.timeline.depth)

    make_trainer(pl, callback, Reader(), max_epochs=2).fit(Surviving(), rows(8))
    record = record_of(callback)
    assert record.progress.iterations == 16
    assert not record.progress.optimizer_steps
    assert depths == [1, 1]  # the hook that reads it, and nothing else
    assert seconds(record) == {"callbacks": 15}


def test_rows_carry_the_epoch_and_begin_with_their_fetch(pl, tmp_path: Path) -> None:
    """Each iteration's row knows its epoch; rows follow one another without a gap or overlap."""
    callback, taken = CostLensCallback("rows"), []

    class Reader(pl.Callback):
        def on_train_epoch_end(self, *_) -> None:
            taken.extend(list(callback.run.parts.recorder.drain(100)))

    make_trainer(pl, callback, Reader(), max_epochs=2).fit(make_module(pl), rows(3))
    callback.run.finish()
    assert [row.context for row in taken] == [0, 0, 0, 1, 1, 1]
    assert [row.samples for row in taken] == [1, 2, 3, 4, 5, 6]
    starts = [row.start_ns for row in taken[1:]]
    assert starts == [row.end_ns for row in taken[:-1]]
    assert taken[-1].end_ns - taken[0].start_ns < 60 * NS_PER_S
