"""A plain loop of two ranks: `job_plain.py torchrun`, or `fork PORT`/`spawn PORT` to start them.

With `JOB_WATCHED_RANKS=1` rank 0 alone is watched.
Every rank prints the samples it saw, counted without costlens.
"""

from __future__ import annotations

import json
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import costlens

WORLD_SIZE = 2
NUM_STEPS = 10


def train() -> None:
    """Train as one rank of the process group that exists."""
    num_samples = 0
    rank = dist.get_rank()
    is_watched = rank < int(os.environ.get("JOB_WATCHED_RANKS", WORLD_SIZE))
    run = costlens.start("job", enabled=is_watched)
    for _ in range(NUM_STEPS):
        with run.iteration(samples=4):
            num_samples += 4
            dist.all_reduce(torch.ones(1))
            time.sleep(0.02)
    run.finish()
    line = {"rank": rank, "pid": os.getpid(), "samples": num_samples}
    os.write(1, f"COUNTED {json.dumps(line)}\n".encode())
    dist.destroy_process_group()


def launched(rank: int, port: int) -> None:
    """Train as a rank that only the arguments of `init_process_group` know of."""
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=WORLD_SIZE)
    train()


if __name__ == "__main__":
    if sys.argv[1] == "torchrun":
        dist.init_process_group("gloo")
        train()
    else:
        mp.start_processes(
            launched, (int(sys.argv[2]),), nprocs=WORLD_SIZE, start_method=sys.argv[1]
        )
