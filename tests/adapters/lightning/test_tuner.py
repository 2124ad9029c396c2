"""Tuners try things out before the training: time of its start-up, none of its progress."""

from __future__ import annotations

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import BatchSizeFinder, LearningRateFinder
from pytorch_lightning.tuner import Tuner

from costlens.core.records import Outcome
from costlens.lightning import CostLensCallback
from costlens.testing import FakeClock
from tests.adapters.lightning.jobs import Plant, make_trainer, record_of, rows, seconds

NUM_ROWS, NUM_VALIDATIONS = 64, 2
FINDERS = {
    "learning rate": lambda: LearningRateFinder(num_training_steps=20),
    "batch size": lambda: BatchSizeFinder(steps_per_trial=3, max_trials=2),
}
TUNERS = {
    "learning rate": lambda tuner, module: tuner.lr_find(module, num_training=20),
    "batch size": lambda tuner, module: tuner.scale_batch_size(
        module, steps_per_trial=3, max_trials=2
    ),
}

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*weights_only:FutureWarning", "ignore:.*batch size finder:UserWarning"
)


class Tunable(pl.LightningModule):
    """A module with something to tune; each step and each validation step takes a second."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.lr, self.batch_size = 0.01, 2
        self.step, self.validation = Plant(clock), Plant(clock)

    def training_step(self, batch, batch_idx):
        self.step()
        return self.layer(batch).square().mean()

    def validation_step(self, batch, batch_idx) -> None:
        self.validation()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.lr)

    def train_dataloader(self):
        return rows(NUM_ROWS, self.batch_size)

    def val_dataloader(self):
        return rows(NUM_VALIDATIONS)

    @property
    def num_steps(self) -> int:
        """Return the steps of one epoch, as it was tuned."""
        return NUM_ROWS // self.batch_size


def check_real_training(module: Tunable, callback: CostLensCallback) -> None:
    """Check that the record is that of one epoch, with all that was tried in its start-up."""
    record = record_of(callback)
    progress, num_steps = record.progress, module.num_steps
    assert (progress.iterations, progress.optimizer_steps) == (num_steps, num_steps)
    assert (progress.samples, progress.validation_batches) == (NUM_ROWS, NUM_VALIDATIONS)
    assert (record.attempt.start_step, record.attempt.end_step) == (0, num_steps)
    assert record.attempt.outcome is Outcome.COMPLETED
    assert record.run.debug is None
    assert record.iteration_time.count == num_steps - 1
    # The first iteration is start-up as well.
    assert seconds(record) == {"forward": num_steps - 1, "validation": NUM_VALIDATIONS}
    num_tried = module.step.num_calls - num_steps
    num_tried += module.validation.num_calls - NUM_VALIDATIONS
    assert num_tried > 0
    assert record.time_ns["startup"] >= (num_tried + 1) * 10**9


@pytest.mark.parametrize("kind", FINDERS)
@pytest.mark.parametrize("is_first", [True, False])
def test_a_finder_among_the_callbacks(clock, tmp_path, kind, is_first) -> None:
    """It tries steps inside the fit, on either side of our callback; then the fit is watched."""
    callback, module = CostLensCallback("tuned"), Tunable(clock)
    callbacks = [FINDERS[kind](), callback] if is_first else [callback, FINDERS[kind]()]
    trainer = make_trainer(pl, *callbacks, max_epochs=1, default_root_dir=tmp_path)
    trainer.fit(module)
    check_real_training(module, callback)


@pytest.mark.parametrize("kind", TUNERS)
def test_a_tuner_before_the_fit(clock, tmp_path, written, kind) -> None:
    """It tunes in the run of the fit that follows: without progress of its own, one record."""
    callback, module = CostLensCallback("tuned"), Tunable(clock)
    trainer = make_trainer(pl, callback, max_epochs=1, default_root_dir=tmp_path)
    TUNERS[kind](Tuner(trainer), module)
    tuned = record_of(callback)
    assert (tuned.progress.iterations, tuned.progress.optimizer_steps) == (0, None)
    assert tuned.progress.samples is None
    assert tuned.progress.validation_batches == 0
    assert tuned.attempt.start_step is None
    trainer.fit(module)
    check_real_training(module, callback)
    assert len(written()) == 1
