"""What watching a plain loop costs the training thread, in µs of CPU a step.

    python -m benchmarks.plain_overhead [--width 64] [--cycles 150]

One process; every 60 steps the subject changes, in random order, and each block is compared with
the bare block of its own cycle. Two processes with the same code differ by more than what is looked
for here.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn

from costlens.config import Config
from costlens.run import Run

BLOCK = 20
# Steps after a change in which the interpreter adapts its caches to the other types again.
SETTLING = 40
WARM_UP_CYCLES = 5

Loop = Callable[[], float]


class Training:
    """A perceptron whose width decides how long a step takes."""

    def __init__(self, width: int) -> None:
        torch.manual_seed(0)
        layers = [layer for _ in range(4) for layer in (nn.Linear(width, width), nn.ReLU())]
        self.model = nn.Sequential(*layers)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.001)
        self.batch = torch.randn(8, width)

    def __iter__(self) -> Iterator[torch.Tensor]:
        for _ in range(SETTLING + BLOCK):
            yield self.batch

    def run(
        self, batches: Iterable[torch.Tensor], scope: Callable[[], AbstractContextManager[object]]
    ) -> float:
        """Return microseconds of CPU a step, after the first steps."""
        begin_ns = 0
        for number, batch in enumerate(batches):
            if number == SETTLING:
                begin_ns = time.thread_time_ns()
            with scope():
                loss = self.model(batch).square().mean()
                loss.backward()
                self.optimizer.step()
                self.optimizer.zero_grad()
        return (time.thread_time_ns() - begin_ns) / BLOCK / 1000


def make_subjects(run: Run, width: int) -> dict[str, Loop]:
    """Return the loops to compare, each with a training of its own."""
    bare, brackets, hooks, both = (Training(width) for _ in range(4))
    run.watch(hooks.model, hooks.optimizer)
    run.watch(both.model, both.optimizer)

    def scope() -> AbstractContextManager[object]:
        return run.iteration(tokens=64, samples=8)

    def plain(training: Training) -> Iterable[torch.Tensor]:
        return training

    return {
        "bare": lambda: bare.run(plain(bare), nullcontext),
        "batches + iteration": lambda: brackets.run(run.batches(brackets), scope),
        "hooks": lambda: hooks.run(plain(hooks), nullcontext),
        "all": lambda: both.run(run.batches(both), scope),
    }


def measure(run: Run, width: int, cycles: int) -> None:
    """Print the added CPU of each subject: median and quartiles over cycles."""
    subjects = make_subjects(run, width)
    cost_us: dict[str, list[float]] = {name: [] for name in subjects}
    order = list(subjects)
    for cycle in range(cycles + WARM_UP_CYCLES):
        random.shuffle(order)
        for name in order:
            spent_us = subjects[name]()
            if cycle >= WARM_UP_CYCLES:
                cost_us[name].append(spent_us)
    bare = cost_us["bare"]
    print(f"bare step: {statistics.median(bare):.0f} µs of CPU")
    for name, costs in cost_us.items():
        if name != "bare":
            added = [cost - base for cost, base in zip(costs, bare, strict=True)]
            low, median, high = statistics.quantiles(added, n=4)
            print(f"{name:20s} {median:+7.1f} µs  ({low:+.0f} … {high:+.0f})")


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, default=64, help="of the model's layers")
    parser.add_argument("--cycles", type=int, default=150)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["COSTLENS_DIR"] = folder
        with Run(Config(summary=False), exporters=[]) as run:
            measure(run, options.width, options.cycles)


if __name__ == "__main__":
    main()
