"""A Lightning fit of five steps that logs, and tells whether anything asked for the network."""

from __future__ import annotations

import atexit
import logging
import socket
import sys
import time
import warnings

import pytorch_lightning as pl
import torch

from costlens.lightning import CostLensCallback

atexit.register(lambda: print("CLOSED", time.monotonic(), flush=True))
warnings.simplefilter("ignore")
logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)


class NoSocket(socket.socket):
    """A socket that tells who wants to connect."""

    def connect(self, address) -> None:
        """Tell and refuse."""
        print("NETWORK", address, flush=True)
        raise OSError("planted")


class Net(pl.LightningModule):
    """A module that logs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, batch_idx):
        loss = self.layer(batch).square().mean()
        self.log("loss", loss)
        logging.getLogger("user").warning("step %d", batch_idx)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


socket.socket = NoSocket
pl.Trainer(
    accelerator="cpu",
    max_steps=5,
    callbacks=[CostLensCallback("offline")],
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
).fit(Net(), torch.utils.data.DataLoader(torch.randn(40, 4), batch_size=4))
print("ENDING", time.monotonic(), flush=True)
