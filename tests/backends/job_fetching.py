"""A plain loop that has what the demo lacks: `job_fetching.py SECONDS`.

Loader workers with a slow data set that is read through a counted file system, gradients that are
logged, and checkpoints often enough for a policy.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

import costlens

SLOW_S = 0.02
MODEL = torch.nn.Linear(16, 1)


class Files(Dataset):
    """Numbers that are read from one file and prepared slowly."""

    def __init__(self, filesystem: object, path: str) -> None:
        self._filesystem, self._path = filesystem, path

    def __len__(self) -> int:
        """Return the number of samples of a pass."""
        return 200

    def __getitem__(self, index: int) -> torch.Tensor:
        """Return a sample, late."""
        with self._filesystem.open(self._path, "rb") as file:
            number = file.read()[index % 16]
        time.sleep(SLOW_S)
        return torch.full((16,), float(number))


def main(seconds: float) -> None:
    """Train for some seconds."""
    path = Path("data.bin")
    path.write_bytes(bytes(range(16)))
    optimizer = torch.optim.SGD(MODEL.parameters(), lr=1e-5)
    run = costlens.start("fetching", summary=False)
    loader = DataLoader(Files(run.filesystem("."), path.name), batch_size=4, num_workers=1)
    run.watch(MODEL, optimizer)
    saved = run.checkpoints(model=MODEL, optimizer=optimizer)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for batch in run.batches(loader):
            with run.iteration(tokens=32, samples=4, slots=64) as iteration:
                loss = MODEL(batch).square().mean()
                loss.backward()
                norm = torch.nn.utils.clip_grad_norm_(MODEL.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
                iteration.log(loss=loss, grad_norm=norm)
            saved.step()
            if time.monotonic() > deadline:
                break
    run.finish()


if __name__ == "__main__":
    main(float(sys.argv[1]))
