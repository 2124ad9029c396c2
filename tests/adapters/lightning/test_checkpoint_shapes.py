"""Fits of many shapes, cut and resumed twice inside an epoch: they end as if nothing had been."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

from tests.adapters.lightning.keeping import (
    NUM_SAMPLES,
    Due,
    assert_same_end,
    make_loader,
    make_module,
    train,
)


@pytest.fixture
def due(monkeypatch: pytest.MonkeyPatch) -> Due:
    """Return what makes saves due."""
    return Due(monkeypatch)


class Stream(IterableDataset[tuple[torch.Tensor]]):
    """Samples without a length that can tell their place."""

    def __init__(self) -> None:
        self.place = 0

    def __iter__(self) -> Iterator[tuple[torch.Tensor]]:
        while self.place < NUM_SAMPLES:
            self.place += 1
            yield (torch.full((2,), self.place / 10),)
        self.place = 0

    def state_dict(self) -> dict[str, int]:
        """Return the place."""
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go there."""
        self.place = state["place"]


class Drawing(TensorDataset):
    """Draws when a sample is made, as augmentation does."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, ...]:
        return (self.tensors[0][index] + torch.rand(()),)


def drawing_loader() -> Any:
    """Return a loader whose data set draws in this process."""
    return DataLoader(Drawing(make_loader().dataset.tensors[0]), 4, shuffle=True)


def persistent_loader() -> Any:
    """Return a loader whose workers live as long as it."""
    data = make_loader().dataset
    return DataLoader(data, 4, shuffle=True, num_workers=1, persistent_workers=True)


def two_loaders() -> Any:
    """Return two loaders that are played side by side."""
    return {"a": make_loader(), "b": make_loader("stateful")}


def build_hooked(pl: ModuleType, cut_at: int | None) -> Any:
    """Return a module whose hooks draw."""
    module = make_module(pl, cut_at)

    class Hooked(type(module)):  # type: ignore[misc]
        def on_train_epoch_start(self) -> None:
            torch.rand(3)

        def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
            del batch, batch_idx
            torch.rand(2)

        def on_train_start(self) -> None:
            torch.rand(1)

        def on_fit_start(self) -> None:
            torch.rand(4)

    module.__class__ = Hooked
    return module


def build_manual(pl: ModuleType, cut_at: int | None) -> Any:
    """Return a module that takes two optimizer steps a batch by itself."""
    module = make_module(pl, cut_at)

    class Manual(type(module)):  # type: ignore[misc]
        def training_step(self, batch: Any, batch_idx: int) -> None:
            for optimizer in self.optimizers():
                optimizer.zero_grad()
                self.manual_backward(super().training_step(batch, batch_idx))
                optimizer.step()

        def configure_optimizers(self) -> Any:
            return [
                torch.optim.AdamW(self.layers[0].parameters(), lr=0.01),
                torch.optim.SGD(self.layers[2].parameters(), lr=0.01, momentum=0.9),
            ]

    module.__class__ = Manual
    module.automatic_optimization = False
    return module


def build_paired(pl: ModuleType, cut_at: int | None) -> Any:
    """Return a module that takes a batch of each of two loaders."""
    module = make_module(pl, cut_at)

    class Paired(type(module)):  # type: ignore[misc]
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return super().training_step([batch["a"][0] + batch["b"][0]], batch_idx)

    module.__class__ = Paired
    return module


def build_plateau(pl: ModuleType, cut_at: int | None) -> Any:
    """Return a module whose schedule follows a validation inside the epoch."""
    module = make_module(pl, cut_at)

    class Plateau(type(module)):  # type: ignore[misc]
        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
            schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
            return {
                "optimizer": optimizer,
                "lr_scheduler": {"scheduler": schedule, "monitor": "val_loss", "frequency": 1},
            }

    module.__class__ = Plateau
    return module


def build_epochs(pl: ModuleType, cut_at: int | None) -> Any:
    """Return a module that does something of weight at the end of an epoch, and a schedule, too."""
    module = make_module(pl, cut_at)

    class Epochs(type(module)):  # type: ignore[misc]
        def on_train_epoch_end(self) -> None:
            with torch.no_grad():
                self.layers[0].weight.mul_(0.9)

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
            schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
            return {
                "optimizer": optimizer,
                "lr_scheduler": {"scheduler": schedule, "monitor": "val_loss", "interval": "epoch"},
            }

    module.__class__ = Epochs
    return module


def validation() -> Any:
    """Return a loader to validate with."""
    return DataLoader(make_loader().dataset, 10)


SHAPES: dict[str, dict[str, Any]] = {
    "drawing": {"make": drawing_loader},
    "persistent": {"make": persistent_loader},
    "stream": {"make": lambda: StatefulDataLoader(Stream(), 4)},
    "two loaders": {"make": two_loaders, "build": build_paired},
    "hooks": {"build": build_hooked},
    "manual": {"build": build_manual},
    "plateau": {"build": build_plateau, "validation": validation()},
    "ends of epochs": {"build": build_epochs, "validation": validation()},
    "limited": {"limit_train_batches": 4},
    "reloaded": {"reload_dataloaders_every_n_epochs": 1},
    "bf16": {"precision": "bf16-mixed"},
    "fractions": {"validation": validation(), "val_check_interval": 0.4},
    "every second epoch": {"validation": validation(), "check_val_every_n_epoch": 2},
    "steps": {"max_epochs": -1, "max_steps": 13},
}
POINTS = {"inside": (6, 8), "between": (5, 10)}


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_twice_resumed_is_whole(
    pl: ModuleType, tmp_path: Path, due: Due, shape: str, point: str
) -> None:
    """C059: the second resume of an epoch keeps what the first one did; nothing is inexact."""
    options = dict(SHAPES[shape])
    make: Callable[[], Any] = options.pop("make", make_loader)
    run = partial(train, pl, make, **options)
    whole, *_ = run(None)
    per_batch = 2 if shape == "manual" else 1
    length = 4 if shape == "limited" else 5
    steps = POINTS[point] if length == 5 or point == "inside" else (4, 8)
    first, second = (number * per_batch for number in steps)
    due.step = first
    run(tmp_path, cut_at=first + per_batch)
    due.step = second
    middle, *_ = run(tmp_path, seed=2, cut_at=second - first + per_batch)
    resumed, _, callback = run(tmp_path, seed=3)
    part = callback.run.parts.state.checkpoints
    assert part is not None
    assert part.resumed_step == second
    if part.inexact:
        assert [shape, point] == ["reloaded", "between"], part.inexact
        return
    assert middle.losses == whole.losses[first : second + per_batch]
    assert len(resumed.losses) == len(whole.losses) - second
    assert_same_end(resumed, whole)
