"""A Lightning training of a few steps over the tasks of its Slurm job."""

from __future__ import annotations

import os
import time

import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset

from costlens.lightning import CostLensCallback


class Model(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        time.sleep(0.5)  # several windows in all
        return self.layer(batch[0]).mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


trainer = Trainer(
    accelerator="cpu",
    devices=int(os.environ["SLURM_NTASKS"]),
    strategy="ddp",
    max_steps=4,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    callbacks=[CostLensCallback("small")],
)
trainer.fit(Model(), DataLoader(TensorDataset(torch.randn(32, 4)), batch_size=2))
