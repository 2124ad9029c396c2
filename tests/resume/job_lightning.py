"""The fit of a Trainer, saved and resumed by itself: ``job_lightning.py STEPS DIGEST_FILE STEP_S``.

Prints a line a step, so that whoever kills it knows where it is.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

from costlens.lightning import CostLensCallback
from tests.resume.digest import digest_of


class Module(pl.LightningModule):
    """A small model with dropout and running statistics."""

    def __init__(self, num_steps: int, step_s: float) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(8, 64),
            torch.nn.Dropout(0.3),
            torch.nn.BatchNorm1d(64),
            torch.nn.Linear(64, 1),
        )
        self.num_steps = num_steps
        self.step_s = step_s

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        """Return the loss."""
        features, targets = batch
        return (self.layers(features) - targets).square().mean()

    def validation_step(self, batch: Any, _: int) -> None:
        """Log what a validation finds."""
        self.log("val_loss", (self.layers(batch[0]) - batch[1]).square().mean())

    def on_train_batch_end(self, *_: Any) -> None:
        """Tell the step, slowly enough to be killed in it."""
        time.sleep(self.step_s)
        print(self.global_step, flush=True)

    def configure_optimizers(self) -> Any:
        """Return an optimizer and a schedule."""
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.num_steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def main(num_steps: int, target: Path, step_s: float) -> None:
    """Train, and write the digest of the final state."""
    torch.manual_seed(11)
    torch.set_num_threads(1)
    module = Module(num_steps, step_s)
    data = TensorDataset(torch.randn(44, 8), torch.randn(44, 1))
    trainer = pl.Trainer(
        max_epochs=-1,
        max_steps=num_steps,
        accelerator="cpu",
        logger=False,
        callbacks=[CostLensCallback("resume")],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, DataLoader(data, 4, shuffle=True), DataLoader(data, 22))
    target.write_text(digest_of(module, trainer.optimizers[0]))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]))
