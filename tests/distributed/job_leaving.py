"""A Lightning fit of two ranks with checkpoints, to be told to leave: ``job_leaving.py``.

Prints each rank's process, and a line a step, so that whoever sends a signal knows where it is.
"""

from __future__ import annotations

import os
import time
import warnings
from typing import Any

import pytorch_lightning as pl
import torch

from costlens.lightning import CostLensCallback

STEP_S = 0.03


def tell(*words: object) -> None:
    """Print one line in one write, so that lines of two ranks do not mix."""
    os.write(1, (" ".join(str(word) for word in words) + "\n").encode())


class Net(pl.LightningModule):
    """One layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        """Return the loss, slowly."""
        time.sleep(STEP_S)
        return self.layer(batch).square().mean()

    def on_train_batch_end(self, *_: Any) -> None:
        """Tell the step."""
        tell("STEP", self.global_rank, self.global_step)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return an optimizer."""
        return torch.optim.SGD(self.parameters(), lr=0.1)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    tell("PID", os.environ.get("LOCAL_RANK", "0"), os.getpid())
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=1,
        callbacks=[CostLensCallback("job")],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Net(), torch.utils.data.DataLoader(torch.randn(80_000, 8), batch_size=2))
