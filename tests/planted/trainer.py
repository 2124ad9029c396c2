"""A Lightning fit that a cause is planted into."""

from __future__ import annotations

import time
from types import ModuleType
from typing import Any

import torch
from torch.utils.data import DataLoader

from costlens.lightning import CostLensCallback
from costlens.run import Run
from tests.adapters.lightning.jobs import make_module, make_trainer
from tests.planted.causes import Plant
from tests.planted.data import Samples, SlowFileSystem, make_loader
from tests.planted.plain import make_scaler, spoil


def train_with_lightning(pl: ModuleType, plant: Plant) -> Run:
    """Fit a Trainer to its end and return its run."""
    door = CostLensCallback(config=plant.config(), tokens=lambda _batch: plant.counts())
    options: dict[str, Any] = {"max_epochs": plant.num_passes, "limit_val_batches": 0}
    callbacks: list[Any] = [door]
    if plant.callback_s:
        callbacks.append(_slow_callback(pl, plant.callback_s))
    if plant.logger_s:
        callbacks.append(_logging_callback(pl))
        options |= {"logger": _slow_logger(pl, plant.logger_s), "log_every_n_steps": 1}
    if plant.validation_s:
        options |= {"val_check_interval": plant.every, "limit_val_batches": 1}
    if plant.save_s:
        callbacks.append(_slow_saves(pl, plant))
    if plant.is_overflowing:
        # Its name for it is fp16 on a GPU; the scaler is all that is wanted of it here.
        options["plugins"] = [pl.plugins.precision.MixedPrecision("16-mixed", "cpu", make_scaler())]
    # The run opens with the fit; what the data set reads is counted from then on.
    reads = _LateFileSystem(door, plant.read_s) if plant.read_s else None
    module = make_module(
        pl,
        step=lambda loss, number: _compute(plant, loss, number),
        validation=lambda: time.sleep(plant.validation_s),
    )
    trainer = make_trainer(pl, *callbacks, **options)
    trainer.fit(module, make_loader(plant, reads), DataLoader(Samples(Plant(num_steps=1))))
    return door.run


def _compute(plant: Plant, loss: torch.Tensor, number: int) -> torch.Tensor:
    time.sleep(plant.step_s(number))
    return spoil(plant, loss.float(), number)


class _LateFileSystem:
    """Asks the run for its counted file system with the first read."""

    def __init__(self, door: CostLensCallback, seconds: float) -> None:
        self.door = door
        self.seconds = seconds
        self.filesystem: Any = None

    def open(self, *arguments: Any) -> Any:
        """Open a file of it."""
        if self.filesystem is None:
            self.filesystem = self.door.run.filesystem(SlowFileSystem(self.seconds))
        return self.filesystem.open(*arguments)


def _slow_callback(pl: ModuleType, seconds: float) -> Any:
    class Slow(pl.Callback):
        def on_train_batch_end(self, *_: Any) -> None:
            time.sleep(seconds)

    return Slow()


def _logging_callback(pl: ModuleType) -> Any:
    class Logging(pl.Callback):
        def on_train_batch_end(self, _trainer: Any, module: Any, *_: Any) -> None:
            module.log("seen", 1.0)

    return Logging()


def _slow_saves(pl: ModuleType, plant: Plant) -> Any:
    class Slow(pl.Callback):
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            if trainer.global_step % plant.every == 0:
                trainer.save_checkpoint(f"{trainer.default_root_dir}/planted.ckpt")

        def on_save_checkpoint(self, *_: Any) -> None:
            time.sleep(plant.save_s)

    return Slow()


def _slow_logger(pl: ModuleType, seconds: float) -> Any:
    class Slow(pl.loggers.logger.Logger):
        name = version = "slow"

        def log_metrics(self, *_: Any, **__: Any) -> None:
            time.sleep(seconds)

        def log_hyperparams(self, *_: Any, **__: Any) -> None:
            """Keep none."""

    return Slow()
