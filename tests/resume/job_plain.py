"""A plain loop with everything random in it, saved and resumed: ``job_plain.py STEPS DIGEST_FILE``.

Prints a line a step, so that whoever kills it knows where it is.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

import costlens
from tests.resume.digest import digest_of


def main(num_steps: int, target: Path, step_s: float) -> None:
    """Train, and write the digest of the final state."""
    torch.manual_seed(11)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 64),
        torch.nn.Dropout(0.3),
        torch.nn.BatchNorm1d(64),
        torch.nn.Linear(64, 1),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, num_steps)
    data = TensorDataset(torch.randn(44, 8), torch.randn(44, 1))
    loader = DataLoader(data, batch_size=4, shuffle=True)
    with costlens.start("resume") as run:
        run.watch(model, optimizer)
        checkpoints = run.checkpoints(
            model=model, optimizer=optimizer, scheduler=scheduler, loader=loader
        )
        step = checkpoints.resume()
        while step < num_steps:
            for features, targets in run.batches(loader):
                with run.iteration(samples=len(features)):
                    loss = (model(features) - targets).square().mean()
                    loss.backward()
                    optimizer.step()
                    optimizer.zero_grad()
                    scheduler.step()
                    time.sleep(step_s)
                step += 1
                print(step, flush=True)
                checkpoints.step()
                if step == num_steps:
                    break
    target.write_text(digest_of(model, optimizer, scheduler))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]))
