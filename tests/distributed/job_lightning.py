"""A job that Lightning launches: `job_lightning.py STRATEGY NUM_FITS`.

It fits as often as asked, the second time as another attempt of the run that the first one made,
and every rank prints the samples it saw, counted without costlens.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path

import pytorch_lightning as pl
import torch

from costlens.lightning import CostLensCallback

warnings.simplefilter("ignore")


class Net(pl.LightningModule):
    """A module that counts what it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
        self.num_samples = 0

    def training_step(self, batch, batch_idx):
        self.num_samples += len(batch)
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def on_fit_end(self) -> None:
        """Print the count in one write, so that lines of two ranks do not mix."""
        line = {"rank": self.global_rank, "pid": os.getpid(), "samples": self.num_samples}
        os.write(1, f"COUNTED {json.dumps(line)}\n".encode())


def make_trainer(strategy: str) -> pl.Trainer:
    """Return a quiet Trainer of two ranks on the CPU."""
    return pl.Trainer(
        accelerator="cpu",
        devices=2,
        strategy=strategy,
        max_epochs=1,
        callbacks=[CostLensCallback("job")],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def main(strategy: str, num_fits: int) -> None:
    """Fit, and fit again."""
    trainer = make_trainer(strategy)
    loader = torch.utils.data.DataLoader(torch.randn(80, 8), batch_size=4)
    trainer.fit(Net(), loader)
    if num_fits > 1:
        (folder,) = Path(os.environ["COSTLENS_DIR"]).iterdir()
        os.environ["COSTLENS_RUN_ID"] = folder.name
        # The same port and the same parent: what variables tell does not tell the fits apart.
        again = make_trainer(strategy)
        again.strategy.cluster_environment = trainer.strategy.cluster_environment
        os.write(1, b"AGAIN\n")
        again.fit(Net(), loader)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
