"""A plain loop that a cause is planted into."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch

from costlens.run import Run
from tests.planted.causes import DANGERS, Plant
from tests.planted.data import WIDTH, Samples, SlowFileSystem, make_loader

# A scale that a good step doubles and a skipped one halves stays where it is.
SCALE = 1024.0


def make_scaler() -> torch.amp.GradScaler:
    """Return a scaler that goes on trying, however many steps overflow."""
    return torch.amp.GradScaler("cpu", init_scale=SCALE, growth_interval=1)


def spoil(plant: Plant, loss: torch.Tensor, number: int) -> torch.Tensor:
    """Return a loss whose gradients overflow where that is planted."""
    return loss * math.inf if plant.is_overflowing and number % 2 else loss


def train_plainly(plant: Plant, adopt: Callable[[Run], None] = bool) -> Run:
    """Train a plain loop to its end and return its run.

    Args:
        plant: The plant.
        adopt: Called with the run once it watches, before the first step.
    """
    run = Run(plant.config(), clock=plant.clock).open()
    filesystem = run.filesystem(SlowFileSystem(plant.read_s)) if plant.read_s else None
    net = torch.nn.Linear(WIDTH, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    scaler = make_scaler() if plant.is_overflowing else None
    run.watch(net, optimizer, scaler=scaler)
    adopt(run)
    forward = _compile(net, plant) if plant.compile_s else net
    loader: Iterable[torch.Tensor] = make_loader(plant, filesystem)
    if plant.is_bare:
        samples = Samples(plant)
        loader = (samples[number] for number in range(plant.num_steps))
    kept = []
    result = SimpleNamespace(item=partial(time.sleep, plant.result_s))
    for _ in range(plant.num_passes):
        for number, batch in enumerate(run.batches(loader, device="cpu")):
            with run.iteration(**plant.counts()):
                optimizer.zero_grad()
                with run.autocast():
                    loss = spoil(plant, forward(batch).square().mean(), number)
                time.sleep(plant.step_s(number))
                result.item()
                _step(loss, optimizer, scaler)
                kept.append(torch.ones(plant.kept_bytes, dtype=torch.uint8))
            for phase, seconds in _between_steps(plant, number):
                with run.phase(phase) if seconds else nullcontext():
                    time.sleep(seconds)
    run.finish()
    return run


def _step(
    loss: torch.Tensor, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler | None
) -> None:
    if scaler is None:
        loss.backward()
        optimizer.step()
    else:
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def _between_steps(plant: Plant, number: int) -> Iterator[tuple[str, float]]:
    yield "callbacks", plant.callback_s
    yield "logging", plant.logger_s
    if number % plant.every == plant.every - 1:
        yield "validation", plant.validation_s
        yield "checkpoint", plant.save_s


def _compile(net: torch.nn.Module, plant: Plant) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the net behind torch's compiler, whose back-end takes a while as a real one does."""

    def compile_slowly(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
        time.sleep(plant.compile_s)
        return graph.forward

    def break_often(batch: torch.Tensor) -> torch.Tensor:
        first = batch.tanh()
        torch._dynamo.graph_break()
        second = first.tanh()
        torch._dynamo.graph_break()
        third = second.tanh()
        torch._dynamo.graph_break()
        fourth = third.tanh()
        torch._dynamo.graph_break()
        return net(fourth)

    forward = break_often if plant.is_in_pieces else net
    compiled: Callable[[torch.Tensor], torch.Tensor] = torch.compile(
        forward, backend=compile_slowly, dynamic=False
    )
    return compiled


if __name__ == "__main__":
    train_plainly(DANGERS[sys.argv[1]])
