"""A plain loop that goes wrong in both ways: a loss that is no number, then an error."""

from __future__ import annotations

import math
import time

import torch

import costlens

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
run = costlens.start("failing", summary=False)
run.watch(model, optimizer)
saved = run.checkpoints(model=model, optimizer=optimizer)
for number in range(40):
    with run.iteration(samples=4) as iteration:
        model(torch.ones(4, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.3 if number == 30 else 0.01)  # one that is slow
        iteration.log(loss=math.nan if number == 35 else 1.0)
    saved.step()
raise ValueError("planted")
