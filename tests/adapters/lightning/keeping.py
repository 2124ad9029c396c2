"""A training in which everything random matters, cut at one point and resumed by itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

from costlens.lightning import CostLensCallback
from costlens.protect.cadence import Cadence

NUM_SAMPLES = 20
BATCH = 4


class CutError(Exception):
    """The end of an attempt."""


class Due:
    """Makes one save due after a step of the Trainer, by the clockwork itself."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.step: int | None = None
        self._is_due = False
        monkeypatch.setattr(Cadence, "note_step", lambda _, step, *__, **___: self.note(step))
        monkeypatch.setattr(Cadence, "is_due", lambda *_: self._is_due)
        monkeypatch.setattr(Cadence, "note_stall", self._rest)

    def note(self, step: int) -> bool:
        """Return whether a save is due."""
        self._is_due = self._is_due or step == self.step
        return self._is_due

    def _rest(self, *_: object) -> None:
        self._is_due, self.step = False, None


def make_loader(kind: str = "plain", num_workers: int = 0) -> Any:
    """Return a loader of twenty samples in batches of four, shuffled."""
    data = torch.arange(2.0 * NUM_SAMPLES).reshape(NUM_SAMPLES, 2) / 40
    make = StatefulDataLoader if kind == "stateful" else DataLoader
    return make(TensorDataset(data), BATCH, shuffle=True, num_workers=num_workers)


def make_module(pl: ModuleType, cut_at: int | None = None) -> Any:
    """Return a module with dropout and a schedule that keeps its losses.

    Args:
        pl: The package.
        cut_at: The batch, over all epochs, in which it fails.
    """

    class Module(pl.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(
                torch.nn.Linear(2, 8), torch.nn.Dropout(0.4), torch.nn.BatchNorm1d(8)
            )
            self.losses: list[float] = []
            self.hooks: list[str] = []

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            if len(self.losses) == cut_at:
                raise CutError
            loss = self.layers(batch[0]).sub(1).square().mean()
            self.losses.append(loss.item())
            return loss

        def validation_step(self, batch: Any, _: int) -> None:
            self.hooks.append("validation")
            self.log("val_loss", self.layers(batch[0]).sub(1).square().mean())

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
            schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.9)
            return {
                "optimizer": optimizer,
                "lr_scheduler": {"scheduler": schedule, "interval": "step"},
            }

    return Module()


def train(
    pl: ModuleType,
    make: Callable[[], Any],
    url: Path | None,
    *,
    cut_at: int | None = None,
    seed: int = 1,
    ckpt_path: object = None,
    validation: Any = None,
    callbacks: tuple[Any, ...] = (),
    build: Callable[[ModuleType, int | None], Any] | None = None,
    **options: Any,
) -> tuple[Any, Any, CostLensCallback]:
    """Train in a process of its own, as far as seeds go; return module, Trainer and callback."""
    pl.seed_everything(seed, verbose=False)
    loader = make()  # some loaders draw a seed when they are made
    module = (build or make_module)(pl, cut_at)
    callback = CostLensCallback(checkpoint_url=None if url is None else str(url))
    trainer = pl.Trainer(
        accelerator="cpu",
        logger=False,
        callbacks=[callback, *callbacks],
        enable_progress_bar=False,
        enable_model_summary=False,
        **{"max_epochs": 3, "enable_checkpointing": False, **options},
    )
    fit = {"train_dataloaders": loader, "val_dataloaders": validation, "ckpt_path": ckpt_path}
    if cut_at is None:
        trainer.fit(module, **fit)
    else:
        with pytest.raises(CutError):
            trainer.fit(module, **fit)
    return module, trainer, callback


def assert_same_end(resumed: Any, whole: Any) -> None:
    """Assert that a resumed training ended as the whole one did, loss by loss and bit by bit."""
    assert resumed.losses == whole.losses[len(whole.losses) - len(resumed.losses) :]
    for name, value in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], value), name
