"""A job whose last rank is killed: `job_missing.py PORT WORLD_SIZE`; the others train on.

No collective comes after the group is made, so nobody waits for the dead rank.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import torch.distributed as dist
import torch.multiprocessing as mp

import costlens
from costlens import gang

KILL_S = 1.5
TOTAL_S = 6.0


def train(rank: int, port: int, world_size: int) -> None:
    """Train for some seconds, or until the kill."""
    gang.PATIENCE_S = 1.0
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=world_size)
    run = costlens.start("missing")
    start_s = time.monotonic()
    while time.monotonic() - start_s < TOTAL_S:
        with run.iteration(samples=1):
            time.sleep(0.02)
        if rank == world_size - 1 and time.monotonic() - start_s > KILL_S:
            os.kill(os.getpid(), signal.SIGKILL)
    run.finish()
    os._exit(0)  # a clean exit would wait for the group


if __name__ == "__main__":
    size = int(sys.argv[2])
    ranks = mp.start_processes(
        train, (int(sys.argv[1]), size), nprocs=size, start_method="fork", join=False
    )
    for process in ranks.processes:
        process.join()
    codes = [process.exitcode for process in ranks.processes]
    assert codes == [0] * (size - 1) + [-signal.SIGKILL], codes
