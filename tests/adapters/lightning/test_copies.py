"""Copies of the callback and of a Trainer under watch know the settings and do nothing."""

from __future__ import annotations

import copy
import pickle
import threading

import pytest
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader

from costlens.lightning import CostLensCallback
from tests.adapters.lightning.jobs import Rows, make_trainer, record_of, rows

COPIERS = {"deepcopy": copy.deepcopy, "pickle": lambda given: pickle.loads(pickle.dumps(given))}

each_copier = pytest.mark.parametrize("copier", COPIERS.values(), ids=COPIERS)


def num_pipelines() -> int:
    """Return how many threads of costlens are alive."""
    return sum(each.name.startswith("costlens") for each in threading.enumerate())


def count_seven(batch) -> int:
    """Return 7 tokens for any batch."""
    return 7


class Job(pl.LightningModule):
    """A module that can be pickled."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def training_step(self, batch, batch_idx):
        return self.layer(batch).square().mean()

    def validation_step(self, batch, batch_idx) -> None:
        self.layer(batch)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Mine(CostLensCallback):
    """A user's subclass with an attribute of its own."""

    extra = "class"


class Copying(pl.Callback):
    """Copies a Trainer, or something else, in the first batch."""

    def __init__(self, copier, given=None) -> None:
        self.copier, self.given, self.made = copier, given, []

    def on_train_batch_end(self, trainer, *_) -> None:
        if not self.made:
            num = num_pipelines()
            self.made.append(None)  # the copy of a Trainer holds a copy of this callback
            self.made[0] = self.copier(trainer if self.given is None else self.given)
            assert num_pipelines() == num

    def __getstate__(self):
        return {"made": [None]}


@each_copier
@pytest.mark.parametrize("kind", [CostLensCallback, Mine])
def test_a_copy_made_at_any_time_is_inert_and_can_be_used(copier, kind) -> None:
    """C132: copied before, during and after a fit it starts nothing, until a fit uses it."""
    callback = kind("copied", tokens=count_seven, gpu_hour_price=2)
    callback.extra = "own"
    before = copier(callback)
    during = Copying(copier, callback)
    make_trainer(pl, callback, during, max_epochs=1).fit(Job(), rows(2))
    original = record_of(callback)
    assert original.progress.iterations == 2
    for made in (before, during.made[0], copier(callback)):
        assert isinstance(made, kind)
        assert isinstance(made, pl.Callback)
        assert (made.state_key, made.extra) == (callback.state_key, "own")
        with pytest.raises(RuntimeError, match="no run yet"):
            _ = made.run
        make_trainer(pl, made, max_epochs=1).fit(Job(), rows(3))
        record = record_of(made)
        assert (record.progress.iterations, record.progress.tokens) == (3, 21)
        assert record.run.id != original.run.id


@each_copier
@pytest.mark.parametrize("profiler", [None, "simple"])
@pytest.mark.parametrize("num_watching", [1, 2])
def test_a_trainer_copied_during_a_fit_is_not_watched(copier, profiler, num_watching) -> None:
    """C132: the copy's profiler, loops and strategy are plain, and its own."""
    copying = Copying(copier)
    watching = [CostLensCallback(f"copied {index}") for index in range(num_watching)]
    trainer = make_trainer(pl, *watching, copying, max_epochs=1, profiler=profiler)
    trainer.fit(Job(), rows(3), rows(1))
    (made,) = copying.made
    assert type(made.profiler) is type(trainer.profiler)
    assert made.profiler is not trainer.profiler
    loop = made.fit_loop.epoch_loop.val_loop
    assert loop.run.__self__ is loop
    assert made.strategy.process_dataloader.__self__ is made.strategy
    for callback in watching:
        assert record_of(callback).progress.iterations == 3


class Referring(Rows):
    """A dataset that refers to the Trainer, as some do; it tells what lives in its worker."""

    trainer = None

    def __getitem__(self, index):
        is_alive = num_pipelines() > 0 or any(
            callback._run is not None or callback._watch is not None
            for callback in self.trainer.callbacks
            if isinstance(callback, CostLensCallback)
        )
        return torch.full((4,), float(is_alive))


@pytest.mark.slow
def test_a_spawned_worker_that_gets_the_trainer_watches_nothing() -> None:
    """C132: a spawned worker of a loader unpickles the Trainer, with an inert callback in it."""
    seen = []

    class Reader(pl.Callback):
        def on_train_batch_start(self, trainer, module, batch, batch_idx) -> None:
            seen.append(float(batch.sum()))

        def __reduce__(self):
            return (pl.Callback, ())

    callback = CostLensCallback("spawned")
    dataset = Referring(2)
    dataset.trainer = make_trainer(pl, callback, Reader(), max_epochs=1)
    loader = DataLoader(
        dataset, num_workers=1, multiprocessing_context="spawn", persistent_workers=True
    )
    dataset.trainer.fit(Job(), loader)
    assert record_of(callback).progress.iterations == 2
    assert seen == [0.0, 0.0]


def test_the_state_of_the_callback_is_plain() -> None:
    """There is no state that a checkpoint could fail to load with `weights_only=True`."""
    assert CostLensCallback("plain").state_dict() == {}
