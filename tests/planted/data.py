"""Loaders that are slow in one place, and the store that one of them reads."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem
from torch.utils.data import DataLoader, Dataset, Sampler, default_collate

if TYPE_CHECKING:
    from tests.planted.causes import Plant

WIDTH = 4


class SlowFile(MemoryFile):
    """A file of which each read takes long."""

    seconds = 0.0

    def read(self, size: int = -1) -> bytes:
        """Read after a while."""
        time.sleep(self.seconds)
        return super().read(size)


class SlowFileSystem(MemoryFileSystem):
    """A store in memory that is as far away as a distant bucket."""

    cachable = False
    protocol = "slow"

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def _open(self, path: str, mode: str = "rb", **_: Any) -> MemoryFile:
        if mode != "rb":
            return MemoryFile(self, path)
        file = SlowFile(self, path, bytes(4 * WIDTH))
        file.seconds = self.seconds
        return file

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Say that it is there."""
        return {"name": path, "size": 4 * WIDTH, "type": "file"}


class Samples(Dataset[torch.Tensor]):
    """Small vectors that take a while to make, or to read; in rows of changing number, if asked."""

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
        num_rows = 1 + self.plant.shape_of(index)
        return torch.full((num_rows, WIDTH), float(index % 7))


class Parcel:
    """A batch that is long on its way to a device."""

    def __init__(self, batch: torch.Tensor, seconds: float) -> None:
        self.batch = batch
        self.seconds = seconds

    def to(self, device: torch.device) -> torch.Tensor:
        """Move it."""
        time.sleep(self.seconds)
        return self.batch.to(device)


class SlowTurns(Sampler[int]):
    """Puts its samples in order for a while before each pass."""

    def __init__(self, plant: Plant) -> None:
        self.plant = plant

    def __len__(self) -> int:
        return self.plant.num_steps

    def __iter__(self) -> Iterator[int]:
        time.sleep(self.plant.turn_s)
        return iter(range(self.plant.num_steps))


def _collate_slowly(samples: list[torch.Tensor], seconds: float) -> torch.Tensor:
    time.sleep(seconds)
    collated: torch.Tensor = default_collate(samples)
    return collated


def _pack(samples: list[torch.Tensor], seconds: float) -> Parcel:
    return Parcel(default_collate(samples), seconds)


def _start_slowly(_number: int, seconds: float) -> None:
    time.sleep(seconds)


def make_loader(plant: Plant, filesystem: Any = None) -> DataLoader[torch.Tensor]:
    """Return the loader of a plant; what a pass begins with is done by workers where it has any."""
    options: dict[str, Any] = {}
    if plant.collate_s:
        options["collate_fn"] = partial(_collate_slowly, seconds=plant.collate_s)
    if plant.transfer_s:
        options["collate_fn"] = partial(_pack, seconds=plant.transfer_s)
    if plant.turn_s and plant.num_workers:
        options["worker_init_fn"] = partial(_start_slowly, seconds=plant.turn_s)
    elif plant.turn_s:
        options["sampler"] = SlowTurns(plant)
    return DataLoader(
        Samples(plant, filesystem), batch_size=1, num_workers=plant.num_workers, **options
    )
