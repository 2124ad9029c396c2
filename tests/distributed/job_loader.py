"""A plain loop over loader workers: `job_loader.py fork|spawn`.

Each sample says what lives in the worker that read it; the workers try to start runs of their own,
and the dataset carries the parent's run with it.
"""

from __future__ import annotations

import json
import os
import sys
import threading

import torch
from torch.utils.data import DataLoader, Dataset

import costlens


class Rows(Dataset):
    """Ten rows that tell the worker's pid, its threads of costlens, and its active runs."""

    def __init__(self, run: costlens.Run) -> None:
        self.run = run

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> torch.Tensor:
        own = costlens.start("worker")
        with own.iteration(samples=100), self.run.iteration(samples=100):
            pass
        own.finish()
        self.run.open()
        threads = sum(each.name.startswith("costlens") for each in threading.enumerate())
        return torch.tensor([os.getpid(), threads, own.is_active + self.run.is_active])


def main(context: str) -> None:
    """Train two epochs with two workers that stay."""
    run = costlens.start("loader")
    loader = DataLoader(
        Rows(run),
        batch_size=2,
        num_workers=2,
        multiprocessing_context=context,
        persistent_workers=True,
    )
    seen = []
    for _ in range(2):
        for batch in run.batches(loader):
            with run.iteration(samples=len(batch)):
                seen.append(batch)
    run.finish()
    pids, threads, runs = torch.cat(seen).unbind(1)
    workers = sorted({*pids.tolist()})
    line = {"rank": 0, "pid": os.getpid(), "samples": len(pids), "workers": workers}
    print("COUNTED", json.dumps(line | {"threads": int(threads.sum()), "runs": int(runs.sum())}))


if __name__ == "__main__":
    main(sys.argv[1])
