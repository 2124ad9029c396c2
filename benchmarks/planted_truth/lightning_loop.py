"""The Lightning loops of the planted-truth table: automatic and manual optimization."""

from __future__ import annotations

import time
import warnings
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import Logger
from pytorch_lightning.plugins.io import CheckpointIO

from benchmarks.planted_truth.case import EPOCHS, Case, Result, before_ns, make_loader
from benchmarks.planted_truth.plants import ClockedLoader, PlantedNet, PlantedSGD, Plants
from costlens.core.records import RankRecord
from costlens.lightning import CostLensCallback

__all__ = ["run_lightning"]


class _Module(pl.LightningModule):
    def __init__(self, plants: Plants, case: Case) -> None:
        super().__init__()
        self.automatic_optimization = case.loop != "manual"
        self.accumulation = case.accumulation
        self.plants = plants
        self.net = PlantedNet(plants)

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor | None:
        loss = self.net(batch).square().mean()
        self.log("loss", loss)
        if self.automatic_optimization:
            return loss
        self.manual_backward(loss)
        if (batch_idx + 1) % self.accumulation == 0:
            optimizer = self.optimizers()
            optimizer.step()
            optimizer.zero_grad()
        return None

    def validation_step(self, batch: torch.Tensor, batch_idx: int) -> None:
        self.plants.spin("validation")
        self.net(batch)

    def transfer_batch_to_device(
        self, batch: Any, device: torch.device, dataloader_idx: int
    ) -> Any:
        if self.trainer.training:
            self.plants.spin("transfer")
        return super().transfer_batch_to_device(batch, device, dataloader_idx)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return PlantedSGD(self.net.parameters(), self.plants)


class _PlantedCallback(pl.Callback):
    """Another callback, which holds the outside clock: training ends with its ``on_train_end``."""

    def __init__(self, plants: Plants) -> None:
        self.plants = plants
        self.begin_ns = self.end_ns = 0

    def setup(self, *_: Any, **__: Any) -> None:
        self.begin_ns = time.perf_counter_ns()

    def on_train_batch_end(self, *_: Any) -> None:
        self.plants.spin("callback")

    def on_save_checkpoint(self, *_: Any) -> None:
        self.plants.spin("checkpoint")

    def on_train_end(self, *_: Any) -> None:
        self.plants.is_armed = False  # dropping the last iterator is no wait for data
        self.end_ns = time.perf_counter_ns()


class _NoDisk(CheckpointIO):
    """Writes nothing: what a disk takes differs from save to save and is not what is planted."""

    def save_checkpoint(self, *_: Any, **__: Any) -> None:
        return None

    def load_checkpoint(self, *_: Any, **__: Any) -> dict[str, Any]:
        return {}

    def remove_checkpoint(self, *_: Any, **__: Any) -> None:
        return None


class _PlantedLogger(Logger):
    def __init__(self, plants: Plants) -> None:
        super().__init__()
        self.plants = plants

    @property
    def name(self) -> str:
        return "planted"

    @property
    def version(self) -> str:
        return "0"

    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        if "loss" in metrics:
            self.plants.spin("logger")

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        return None


def run_lightning(case: Case, plants: Plants, folder: str) -> Result:
    """Return what costlens booked for a Lightning fit with these plants."""
    clock = _PlantedCallback(plants)
    watcher = CostLensCallback("planted")
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=1,
        accumulate_grad_batches=case.accumulation if case.loop == "lightning" else 1,
        callbacks=[
            clock,
            watcher,
            pl.callbacks.ModelCheckpoint(dirpath=folder, save_top_k=-1, every_n_epochs=1),
        ],
        default_root_dir=folder,
        enable_model_summary=False,
        enable_progress_bar=False,
        log_every_n_steps=1,
        logger=_PlantedLogger(plants),
        max_epochs=EPOCHS,
        num_sanity_val_steps=0,
        plugins=[_NoDisk()],
    )
    validation = torch.utils.data.DataLoader(torch.randn(8, 32), batch_size=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.fit(
            _Module(plants, case), ClockedLoader(make_loader(case, plants), plants), validation
        )
    record = watcher.run.finish()
    assert isinstance(record, RankRecord)
    outside_ns = clock.end_ns - clock.begin_ns
    return Result(record, plants, outside_ns, before_ns(watcher.run))
