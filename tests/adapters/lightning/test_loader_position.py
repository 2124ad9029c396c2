"""The place in a loader under a Trainer, which counts batches itself and looks ahead on streams."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

from costlens.protect.loader_position import follow
from costlens.protect.rng import capture_rng, restore_rng

NUM_SAMPLES = 20
NUM_EPOCHS = 3


class Stream(IterableDataset[torch.Tensor]):
    """Samples without a length that can tell their place."""

    def __init__(self) -> None:
        self.place = 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        while self.place < NUM_SAMPLES:
            self.place += 1
            yield torch.full((2,), float(self.place))
        self.place = 0

    def state_dict(self) -> dict[str, int]:
        """Return the place."""
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go there."""
        self.place = state["place"]


class Drawing(TensorDataset):
    """Draws when a sample is made, as augmentation does."""

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.tensors[0][index] + torch.rand(()) + random.random()


def make_loader(kind: str, num_workers: int) -> Any:
    """Return a loader of twenty samples in batches of four."""
    data = torch.arange(2.0 * NUM_SAMPLES).reshape(NUM_SAMPLES, 2) / 40
    if kind == "stream":
        return StatefulDataLoader(Stream(), 4, num_workers=num_workers)
    if kind == "stateful":
        return StatefulDataLoader(TensorDataset(data), 4, shuffle=True, num_workers=num_workers)
    if kind == "drawing":
        return DataLoader(Drawing(data), 4, shuffle=True)
    return DataLoader(TensorDataset(data), 4, shuffle=True, num_workers=num_workers)


def make_module(pl: ModuleType) -> Any:
    """Return a module with dropout that keeps its losses, and whose hooks draw."""

    class Module(pl.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Dropout(0.4))
            self.losses: list[float] = []

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            inputs = batch[0] if isinstance(batch, list) else batch
            loss = self.layers(inputs).square().mean()
            self.losses.append(loss.item())
            return loss

        def on_train_epoch_start(self) -> None:
            torch.rand(3)

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), lr=0.01)

    return Module()


class Keeping:
    """What a callback does to save at a point, and to resume from what it finds in a checkpoint."""

    def __init__(self, path: Path | None, point: tuple[int, str]) -> None:
        self.path = path
        self.point = point
        self.position: Any = None
        self.restored: dict[str, Any] | None = None
        self.looks_ahead = False
        self.num_before = 0
        self.inexact: list[str] = []

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Follow the loader that the Trainer is about to iterate."""
        del pl_module, stage
        process = trainer.strategy.process_dataloader

        def follow_loader(loader: Any) -> Any:
            processed = process(loader)
            self.looks_ahead = not _has_length(processed)
            self.position = follow(processed, self.inexact.append, can_look_back=self.looks_ahead)
            if self.restored is not None:
                self.inexact += self.position.restore(self.restored["place"], self._set_rng)
                if not self.position.is_waiting:
                    self.position.delay_pass()
            return processed

        trainer.strategy.process_dataloader = follow_loader

    def _set_rng(self) -> None:
        assert self.restored is not None
        restore_rng(self.restored["rng"])

    def on_train_epoch_start(self, *_: Any) -> None:
        """Go on between two passes from here; the hooks of the start have drawn before."""
        if self.restored is not None and not self.position.is_waiting:
            self._set_rng()

    def on_train_batch_start(self, *_: Any) -> None:
        """A stream's first batch was fetched long ago, and hooks have drawn since."""
        if self.restored is not None and self.looks_ahead:
            self._set_rng()
        self.restored = None

    def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
        """Save inside a pass."""
        if (trainer.global_step, "batch") == self.point:
            self._save(trainer, module)

    def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
        """Save between two passes: the Trainer has counted to the end, the loader has not."""
        self.position.end_pass()
        if (trainer.global_step, "epoch") == self.point:
            self._save(trainer, module)

    def _save(self, trainer: Any, module: Any) -> None:
        if self.path is not None:
            self.num_before = len(module.losses)
            trainer.save_checkpoint(self.path)

    def state_dict(self) -> dict[str, Any]:
        """Return the place, and the random numbers."""
        place = self.position.state(num_ahead=int(self.looks_ahead))
        return {"place": place, "rng": capture_rng()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Keep them until there is a loader."""
        self.restored = state

    def on_load_checkpoint(self, trainer: Any, module: Any, checkpoint: dict[str, Any]) -> None:
        """Leave out Lightning's own copy of a loader's state: one batch ahead on streams."""
        del trainer, module
        checkpoint["loops"]["fit_loop"]["state_dict"].pop("combined_loader", None)


def make_keeper(pl: ModuleType, path: Path | None, point: tuple[int, str]) -> Any:
    """Return the callback of a package."""
    return type("Keeper", (Keeping, pl.Callback), {})(path, point)


def _has_length(loader: Any) -> bool:
    try:
        len(loader)
    except TypeError:
        return False
    return True


def fit(pl: ModuleType, loader: Any, keeper: Any, path: Path | None = None) -> Any:
    """Train; return the module."""
    module = make_module(pl)
    trainer = pl.Trainer(
        max_epochs=NUM_EPOCHS,
        accelerator="cpu",
        logger=False,
        callbacks=[keeper],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, loader, ckpt_path=path)
    return module


ROWS = [
    *((kind, 0, point) for kind in ("plain", "stateful") for point in ("batch", "epoch")),
    *((kind, 2, "batch") for kind in ("plain", "stateful")),
    *((kind, 2, "epoch") for kind in ("plain", "stateful")),
    *(("drawing", 0, "batch"), ("stream", 0, "batch"), ("stream", 1, "batch")),
]


@pytest.mark.parametrize(("kind", "num_workers", "point"), ROWS)
def test_resumed_fit_is_the_fit_without_a_break(
    pl: ModuleType, tmp_path: Path, kind: str, num_workers: int, point: str
) -> None:
    """Every loss after the resume, those of later epochs too, and the weights are equal."""
    path = tmp_path / "saved.ckpt"
    where = (8, "batch") if point == "batch" else (10, "epoch")
    pl.seed_everything(1, verbose=False)
    keeper = make_keeper(pl, path, where)
    whole = fit(pl, make_loader(kind, num_workers), keeper)
    pl.seed_everything(2, verbose=False)
    resumer = make_keeper(pl, None, where)
    resumed = fit(pl, make_loader(kind, num_workers), resumer, path)
    assert resumed.losses == whole.losses[keeper.num_before :]
    assert len(resumed.losses) == 3 * 5 - where[0]
    assert torch.equal(resumed.layers[0].weight, whole.layers[0].weight)
    assert resumer.inexact == []
