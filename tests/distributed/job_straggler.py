"""Two ranks in DDP, of which one takes ten times as long in every step.

`torchrun job_straggler.py plain|lightning|callback RANK` names the slow one; -1 are both. With
`callback` it takes the time in a callback, behind its steps.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from typing import Any

import pytorch_lightning as pl
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import costlens
from costlens.lightning import CostLensCallback

# DDP tells what its hundredth all-reduce takes; Lightning's loop is held up by more neighbours.
NUM_STEPS = {"plain": 120, "lightning": 30}
SLOW_S = {"plain": 0.03, "lightning": 0.15}
USUAL = 0.1


def train_plainly(seconds: float) -> None:
    """Train a plain loop whose steps take so long."""
    dist.init_process_group("gloo")
    net = DistributedDataParallel(torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    run = costlens.start("straggler")
    run.watch(net, optimizer)
    batches = [torch.randn(4, 8) for _ in range(NUM_STEPS["plain"])]
    for batch in run.batches(batches):
        with run.iteration(samples=4):
            optimizer.zero_grad()
            loss = net(batch).square().mean()
            time.sleep(seconds)
            loss.backward()
            optimizer.step()
    run.finish()
    dist.barrier()
    dist.destroy_process_group()


class Net(pl.LightningModule):
    """A module whose steps take so long."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 2)
        self.seconds = seconds

    def training_step(self, batch, batch_idx):
        time.sleep(self.seconds)
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Slow(pl.Callback):
    """A callback that takes so long."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def on_train_batch_end(self, *_: Any) -> None:
        time.sleep(self.seconds)


def train_with_lightning(seconds: float, callback_s: float = 0.0) -> None:
    """Fit a Trainer to its end."""
    warnings.simplefilter("ignore")  # its advice about loaders
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=1,
        callbacks=[CostLensCallback("straggler"), Slow(callback_s)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    loader = torch.utils.data.DataLoader(
        torch.randn(2 * 4 * NUM_STEPS["lightning"], 8), batch_size=4
    )
    trainer.fit(Net(seconds), loader)


def main(loop: str, slow_rank: str) -> None:
    """Train; two slow ranks are none."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    factor = 1.0 if slow_rank in ("-1", os.environ["RANK"]) else USUAL
    if loop == "plain":
        train_plainly(factor * SLOW_S[loop])
    elif loop == "lightning":
        train_with_lightning(factor * SLOW_S[loop])
    else:
        train_with_lightning(USUAL * SLOW_S["lightning"], factor * SLOW_S["lightning"])


if __name__ == "__main__":
    main(*sys.argv[1:])
