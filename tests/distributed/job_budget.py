"""A plain loop of two ranks under a budget that is spent at once: `job_budget.py KIND`.

KIND is `lockstep` (ranks meet in a collective every step), `skewed` (they never meet, and rank 1 is
four times as slow) or `lightning`. Every rank prints the steps it made and that it got to its end.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings

import torch
import torch.distributed as dist

import costlens

NUM_STEPS = 4000
STEP_S = 0.005


def tell(rank: int, num_steps: int) -> None:
    """Print one line in one write, so that lines of two ranks do not mix."""
    os.write(1, f"COUNTED {json.dumps({'rank': rank, 'steps': num_steps})}\n".encode())


def train_plain(kind: str) -> None:
    """Train until the end, or until all ranks have agreed to stop."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    num_steps = 0
    with costlens.start("job") as run:
        for _ in run.batches(range(NUM_STEPS)):
            with run.iteration(samples=1):
                num_steps += 1
                if kind == "lockstep":
                    dist.all_reduce(torch.ones(1))
                time.sleep(STEP_S if kind == "lockstep" or rank == 0 else 4 * STEP_S)
    tell(rank, num_steps)
    dist.barrier()  # a rank that had gone on would not come
    dist.destroy_process_group()


def train_lightning() -> None:
    """Fit with accumulation until the Trainer is asked to stop."""
    import pytorch_lightning as pl

    from costlens.lightning import CostLensCallback

    warnings.simplefilter("ignore")

    class Net(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 1)

        def training_step(self, batch, batch_idx):
            time.sleep(STEP_S)
            return self.layer(batch).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    trainer = pl.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_epochs=4, accumulate_grad_batches=2,
        callbacks=[CostLensCallback("job")], logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Net(), torch.utils.data.DataLoader(torch.randn(8000, 8), batch_size=2))
    tell(trainer.global_rank, trainer.global_step)
    trainer.strategy.barrier()


if __name__ == "__main__":
    if sys.argv[1] == "lightning":
        train_lightning()
    else:
        train_plain(sys.argv[1])
