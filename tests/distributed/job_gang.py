"""A job of two ranks of which rank 1 comes late: `job_gang.py first|after [SECONDS]`.

`first` starts the run before the process group, `after` when that is there. Steps are made only by
the third iteration on. Seconds that are given count from when rank 0 is there.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

import costlens

LATE_S = 2.0


def come(late_s: float | None) -> None:
    """Come late, if this is the late one."""
    mark = Path(os.environ["HOME"]) / "there"
    if os.environ["RANK"] == "0":
        mark.touch()
    elif late_s is None:
        time.sleep(LATE_S)
    else:
        while not mark.exists():
            time.sleep(0.05)
        time.sleep(late_s)


def main(when: str, late_s: float | None = None) -> None:
    """Meet the other rank, and train a little."""
    run = costlens.start("gang") if when == "first" else None
    come(late_s)
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
    main(sys.argv[1], *map(float, sys.argv[2:]))
