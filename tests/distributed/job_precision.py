"""Two ranks on unequal hardware: `job_precision.py MAJOR MAJOR`, compute capability by rank.

Rank 1 alone overflows once. Each rank prints the parameters it ends with, and its steps' scales.
"""

from __future__ import annotations

import json
import math
import os
import sys
import warnings

import pytorch_lightning as pl
import torch

from costlens.lightning import CostLensCallback
from costlens.protect import trainer_precision
from costlens.protect.precision import Hardware

warnings.simplefilter("ignore")


class Net(pl.LightningModule):
    """A module whose loss is infinite on rank 1 in the third of its batches."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, batch_idx):
        is_bad = batch_idx == 2 and self.global_rank == 1 and self.trainer.precision == "16-mixed"
        return self.layer(batch).float().square().mean() * (math.inf if is_bad else 1e-3)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def on_fit_end(self) -> None:
        """Print what the rank ended with in one write, so that lines of two ranks do not mix."""
        scaler = self.trainer.precision_plugin.scaler
        line = {
            "rank": self.global_rank,
            "precision": self.trainer.precision,
            "weights": [value.item() for value in self.layer.weight.detach().flatten()],
            "scale": None if scaler is None else scaler.get_scale(),
        }
        os.write(1, f"COUNTED {json.dumps(line)}\n".encode())


def main(majors: list[int]) -> None:
    """Fit, each rank with a device of its own kind."""
    own = Hardware("cuda", (majors[int(os.environ.get("LOCAL_RANK", "0"))], 0))
    trainer_precision.look_at_hardware = lambda _: own
    torch.manual_seed(1)
    pl.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=1,
        callbacks=[CostLensCallback("job", precision="auto")],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    ).fit(Net(), torch.utils.data.DataLoader(torch.randn(40, 8), batch_size=4))


if __name__ == "__main__":
    main([int(major) for major in sys.argv[1:3]])
