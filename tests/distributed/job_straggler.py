"""Two ranks in DDP, of which one computes ten times as long in every step.

`torchrun job_straggler.py RANK` names the slow one; -1 is none.
"""

from __future__ import annotations

import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import costlens

NUM_STEPS = 120
USUAL_S = 0.003
SLOW_S = 0.03


def main(slow_rank: int) -> None:
    """Train."""
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = DistributedDataParallel(torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    run = costlens.start("straggler")
    run.watch(net, optimizer)
    batches = [torch.randn(4, 8) for _ in range(NUM_STEPS)]
    for batch in run.batches(batches):
        with run.iteration(samples=4):
            optimizer.zero_grad()
            loss = net(batch).square().mean()
            time.sleep(SLOW_S if rank == slow_rank else USUAL_S)
            loss.backward()
            optimizer.step()
    run.finish()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]))
