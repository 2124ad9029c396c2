"""A job of two ranks of which rank 1 comes late: `job_gang.py first|after`.

`first` starts the run before the process group, `after` when that is there. Steps are made only by
the third iteration on.
"""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist

import costlens

LATE_S = 2.0


def main(when: str) -> None:
    """Meet the other rank, and train a little."""
    run = costlens.start("gang") if when == "first" else None
    if os.environ["RANK"] == "1":
        time.sleep(LATE_S)
    dist.init_process_group("gloo")
    run = run or costlens.start("gang")
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run.watch(model, optimizer)
    for number in run.batches(range(6)):
        with run.iteration(samples=1):
            model(torch.ones(1, 2)).sum().backward()
            time.sleep(0.1)
            if number >= 2:
                optimizer.step()
    run.finish()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
