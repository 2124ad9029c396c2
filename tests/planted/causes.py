"""Trainings with one cause of slowness each: a plain loop and a Lightning fit of a small net.

Everything takes a millisecond or two a step, and the plant ten times as long, so that it stays the
greatest part on a machine that others use as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem
from torch.utils.data import DataLoader, Dataset, default_collate

from costlens.config import Config
from costlens.lightning import CostLensCallback
from costlens.run import Run
from tests.adapters.lightning.jobs import make_module, make_trainer

PLANT_S = 0.02
COMPUTE_S = 0.002
WIDTH = 4
TOKENS = 10
PRICE_PER_HOUR = 36


@dataclass
class Plant:
    """Where a training is slow; what is not named takes no time.

    Args:
        sample_s: Making one sample.
        read_s: Reading one sample from a counted store.
        collate_s: Putting a batch together.
        compute_s: The step itself.
        callback_s: A hook of another callback.
        logger_s: One line of a logger.
        validation_s: A batch of a validation, after every second step.
        save_s: A save, after every second step.
        padding: Share of token positions that are padding.
        num_workers: Workers of the loader.
        num_steps: How long it lasts.
    """

    sample_s: float = 0.0
    read_s: float = 0.0
    collate_s: float = 0.0
    compute_s: float = COMPUTE_S
    callback_s: float = 0.0
    logger_s: float = 0.0
    validation_s: float = 0.0
    save_s: float = 0.0
    padding: float = 0.0
    num_workers: int = 0
    num_steps: int = 180


PLANTS: dict[str, Plant] = {
    "data_preprocessing": Plant(sample_s=PLANT_S),
    "storage_read": Plant(read_s=PLANT_S),
    "too_few_workers": Plant(sample_s=PLANT_S, num_workers=1),
    "slow_collate": Plant(collate_s=PLANT_S),
    "slow_callbacks": Plant(callback_s=PLANT_S),
    "slow_logging": Plant(logger_s=PLANT_S),
    "frequent_validation": Plant(validation_s=2 * PLANT_S),
    "checkpoint_overhead": Plant(save_s=2 * PLANT_S),
    "padding_waste": Plant(compute_s=PLANT_S, padding=0.6),
}
HEALTHY = {
    "in the process": Plant(compute_s=PLANT_S),
    # Its items take 20 ms, and two workers make one every 10 ms for a step of 50 ms.
    "prefetched": Plant(sample_s=0.02, compute_s=0.05, num_workers=2, num_steps=80),
}


class SlowFile(MemoryFile):
    """A file of which each read takes long."""

    def read(self, size: int = -1) -> bytes:
        """Read after a while."""
        time.sleep(PLANT_S)
        return super().read(size)


class SlowFileSystem(MemoryFileSystem):
    """A store in memory that is as far away as a distant bucket."""

    cachable = False
    protocol = "slow"

    def _open(self, path: str, mode: str = "rb", **_: Any) -> MemoryFile:
        return SlowFile(self, path, bytes(4 * WIDTH)) if mode == "rb" else MemoryFile(self, path)

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Say that it is there."""
        return {"name": path, "size": 4 * WIDTH, "type": "file"}


class Samples(Dataset[torch.Tensor]):
    """Small vectors that take a while to make, or to read."""

    def __init__(self, plant: Plant, filesystem: Any = None) -> None:
        self.plant = plant
        self.filesystem = filesystem

    def __len__(self) -> int:
        return self.plant.num_steps

    def __getitem__(self, index: int) -> torch.Tensor:
        if index >= self.plant.num_steps:
            raise IndexError(index)
        if self.plant.sample_s:
            time.sleep(self.plant.sample_s)
        if self.filesystem is not None:
            with self.filesystem.open(f"/{index}", "rb") as file:
                file.read()
        return torch.full((WIDTH,), float(index % 7))


def make_loader(plant: Plant, filesystem: Any = None) -> DataLoader[torch.Tensor]:
    """Return the loader of a plant."""

    def collate(samples: list[torch.Tensor]) -> torch.Tensor:
        time.sleep(plant.collate_s)
        return default_collate(samples)

    return DataLoader(
        Samples(plant, filesystem),
        batch_size=1,
        num_workers=plant.num_workers,
        collate_fn=collate if plant.collate_s else None,
    )


def count(plant: Plant) -> dict[str, int]:
    """Return what a batch of one sample counts."""
    return {"samples": 1, "slots": TOKENS, "tokens": round(TOKENS * (1 - plant.padding))}


def train_plainly(plant: Plant) -> Run:
    """Train a plain loop to its end and return its run."""
    run = Run(make_config()).open()
    filesystem = run.filesystem(SlowFileSystem()) if plant.read_s else None
    net = torch.nn.Linear(WIDTH, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    run.watch(net, optimizer)
    for number, batch in enumerate(run.batches(make_loader(plant, filesystem))):
        with run.iteration(**count(plant)):
            optimizer.zero_grad()
            net(batch).square().mean().backward()
            time.sleep(plant.compute_s)
            optimizer.step()
        for phase, seconds in _between_steps(plant, number):
            with run.phase(phase) if seconds else nullcontext():
                time.sleep(seconds)
    run.finish()
    return run


def _between_steps(plant: Plant, number: int) -> Iterator[tuple[str, float]]:
    yield "callbacks", plant.callback_s
    yield "logging", plant.logger_s
    if number % 2:
        yield "validation", plant.validation_s
        yield "checkpoint", plant.save_s


def train_with_lightning(pl: ModuleType, plant: Plant) -> Run:
    """Fit a Trainer to its end and return its run."""
    door = CostLensCallback(config=make_config(), tokens=lambda _batch: count(plant))
    options: dict[str, Any] = {"max_epochs": 1, "limit_val_batches": 0}
    callbacks: list[Any] = [door]
    if plant.callback_s:
        callbacks.append(_slow_callback(pl, plant.callback_s))
    if plant.logger_s:
        callbacks.append(_logging_callback(pl))
        options |= {"logger": _slow_logger(pl, plant.logger_s), "log_every_n_steps": 1}
    if plant.validation_s:
        options |= {"val_check_interval": 2, "limit_val_batches": 1}
    if plant.save_s:
        callbacks.append(_slow_saves(pl, plant.save_s))
    # The run opens with the fit; what the data set reads is counted from then on.
    reads = _LateFileSystem(door) if plant.read_s else None
    module = make_module(
        pl,
        step=lambda loss, _number: _compute(plant.compute_s, loss),
        validation=lambda: time.sleep(plant.validation_s),
    )
    trainer = make_trainer(pl, *callbacks, **options)
    trainer.fit(module, make_loader(plant, reads), DataLoader(Samples(Plant(num_steps=1))))
    return door.run


def _compute(seconds: float, loss: torch.Tensor) -> torch.Tensor:
    time.sleep(seconds)
    return loss


class _LateFileSystem:
    """Asks the run for its counted file system with the first read."""

    def __init__(self, door: CostLensCallback) -> None:
        self.door = door
        self.filesystem: Any = None

    def open(self, *arguments: Any) -> Any:
        """Open a file of it."""
        if self.filesystem is None:
            self.filesystem = self.door.run.filesystem(SlowFileSystem())
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


def _slow_saves(pl: ModuleType, seconds: float) -> Any:
    class Slow(pl.Callback):
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            if trainer.global_step % 2 == 0:
                trainer.save_checkpoint(f"{trainer.default_root_dir}/planted.ckpt")

        def on_save_checkpoint(self, *_: Any) -> None:
            time.sleep(seconds)

    return Slow()


def _slow_logger(pl: ModuleType, seconds: float) -> Any:
    class Slow(pl.loggers.logger.Logger):
        name = version = "slow"

        def log_metrics(self, *_: Any, **__: Any) -> None:
            time.sleep(seconds)

        def log_hyperparams(self, *_: Any, **__: Any) -> None:
            """Keep none."""

    return Slow()


def make_config() -> Config:
    """Return settings of a priced run with short windows that prints nothing."""
    return Config(summary=False, log_level="error", window_s=0.5, node_hour_price=PRICE_PER_HOUR)


Train = Callable[[Plant], Run]
