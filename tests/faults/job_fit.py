"""A Lightning fit: `job_fit.py NUM_STEPS`; its last step raises an error that nobody catches."""

from __future__ import annotations

import atexit
import sys
import time
import warnings

import pytorch_lightning as pl
import torch

from costlens.lightning import CostLensCallback

# Registered first and so run last: what costlens does at exit is over by then.
atexit.register(lambda: print("CLOSED", time.monotonic(), flush=True))
warnings.simplefilter("ignore")


class Net(pl.LightningModule):
    """A module that fails on purpose."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, batch_idx):
        time.sleep(0.01)
        if batch_idx == int(sys.argv[1]):
            print("ENDING", time.monotonic(), flush=True)
            raise ValueError("planted")
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


pl.Trainer(
    accelerator="cpu",
    max_epochs=1,
    callbacks=[CostLensCallback("fit")],
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
).fit(Net(), torch.utils.data.DataLoader(torch.randn(400, 4), batch_size=4))
