"""What the Lightning door costs the training thread, in µs of CPU a step.

    python -m benchmarks.lightning_overhead [--width 64] [--cycles 150] [--profiler simple]

One training; every 20 steps the subject under test changes, in random order, and each block is
compared with the bare block of its own cycle. Two processes with the same code differ by more than
what is looked for here.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import statistics
import tempfile
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, IterableDataset

from costlens.lightning import CostLensCallback

BLOCK = 20
# Steps after a change in which the interpreter adapts its caches to the other types again.
SETTLING = 10
WARM_UP_CYCLES = 5


class Nothing(pl.Callback):
    """Two hooks that do nothing: what any callback costs."""

    def on_train_batch_start(self, *_: Any) -> None:
        return None

    def on_train_batch_end(self, *_: Any) -> None:
        return None


class Ring(pl.Callback):
    """Two clock readings and one slot of a ring: the least that measuring costs."""

    def __init__(self) -> None:
        self.rows = [(0, 0)] * 1024
        self.begin_ns = self.num = 0

    def on_train_batch_start(self, *_: Any) -> None:
        self.begin_ns = time.perf_counter_ns()

    def on_train_batch_end(self, *_: Any) -> None:
        self.rows[self.num % 1024] = (self.begin_ns, time.perf_counter_ns())
        self.num += 1


class Job(pl.LightningModule):
    """A perceptron whose width decides how long a step takes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(32, width), torch.nn.ReLU(), torch.nn.Linear(width, 32)
        )

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        """Return the loss."""
        return self.net(batch).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Switch(IterableDataset):
    """The loader's dataset: between two batches it changes the subject and reads the CPU clock.

    Args:
        num_cycles: Blocks of each subject.
    """

    def __init__(self, num_cycles: int) -> None:
        self.num_cycles = num_cycles
        self.trainer: Any = None
        self.subjects: dict[str, Callable[[], None]] = {}
        self.cost_us: dict[str, list[float]] = {}

    def __iter__(self) -> Iterator[torch.Tensor]:
        row = torch.randn(16, 32)
        yield row  # Lightning reads ahead, before the training starts
        order = list(self.subjects)
        for cycle in range(self.num_cycles):
            random.shuffle(order)
            for name in order:
                self.subjects[name]()
                for _ in range(SETTLING):
                    yield row
                begin_ns = time.thread_time_ns()
                for _ in range(BLOCK):
                    yield row
                spent_us = (time.thread_time_ns() - begin_ns) / BLOCK / 1000
                if cycle >= WARM_UP_CYCLES:
                    self.cost_us.setdefault(name, []).append(spent_us)


class Subjects(pl.Callback):
    """Sets the subjects up once the watch is on, and takes them off before it goes."""

    def __init__(self, switch: Switch, ours: CostLensCallback, others: list[pl.Callback]) -> None:
        self.switch, self.ours, self.others = switch, ours, others

    def on_train_start(self, trainer: pl.Trainer, *_: Any) -> None:
        """Take the Trainer apart into what belongs to each subject."""
        self.all, self.watched = trainer.callbacks, trainer.profiler
        plain = trainer.profiler.wrapped
        watch = self.ours._watch
        (optimizer,) = trainer.optimizers
        hooks_of = {
            name: getattr(optimizer, name)
            for name in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
        }

        def use(profiler: Any, *callbacks: pl.Callback) -> Callable[[], None]:
            def change() -> None:
                watch._times.settle(0)
                trainer.profiler = profiler
                trainer.callbacks = [*self.others, *callbacks]
                for name, hooks in hooks_of.items():
                    setattr(optimizer, name, hooks if self.ours in callbacks else OrderedDict())

            return change

        self.switch.subjects = {
            "bare": use(plain),
            "no-op callback": use(plain, Nothing()),
            "ring floor": use(plain, Ring()),
            "costlens": use(self.watched, self.ours),
        }


class Restoring(Job):
    """Gives the Trainer its parts back when the epoch has ended."""

    subjects: Subjects

    def on_train_epoch_end(self) -> None:
        """Restore callbacks and profiler."""
        self.trainer.callbacks = self.subjects.all
        self.trainer.profiler = self.subjects.watched


def measure(width: int, cycles: int, profiler: str | None, num_others: int) -> None:
    """Print the added CPU of each subject: median and quartiles over cycles."""
    switch = Switch(cycles + WARM_UP_CYCLES)
    ours = CostLensCallback("overhead")
    subjects = Subjects(switch, ours, [Nothing() for _ in range(num_others)])
    module = Restoring(width)
    module.subjects = subjects
    trainer = pl.Trainer(
        accelerator="cpu",
        callbacks=[ours, subjects],
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
        logger=False,
        max_epochs=1,
        profiler=profiler,
    )
    switch.trainer = trainer
    trainer.fit(module, DataLoader(switch, batch_size=None))
    bare = switch.cost_us["bare"]
    print(f"bare step: {statistics.median(bare):.0f} µs of CPU")
    for name, costs in switch.cost_us.items():
        if name != "bare":
            added = [cost - base for cost, base in zip(costs, bare, strict=True)]
            low, median, high = statistics.quantiles(added, n=4)
            # Of a median, from the quartiles: single blocks are hit by whatever else runs.
            error = 1.25 * (high - low) / 1.349 / len(added) ** 0.5
            print(f"{name:16s} {median:+7.1f} µs  ({low:+.0f} … {high:+.0f}, ± {error:.1f})")
    record = ours.run.finish()
    if record is not None:
        num = record.progress.iterations
        print(
            f"pipeline thread  {record.telemetry.overhead_s:.2f} s in all for {num} watched steps"
        )


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, default=64, help="of the model's hidden layer")
    parser.add_argument("--cycles", type=int, default=150)
    parser.add_argument("--profiler", choices=["simple"], help="the user's own profiler")
    parser.add_argument("--others", type=int, default=0, help="other callbacks, two hooks each")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(COSTLENS_DIR=folder, COSTLENS_SUMMARY="0")
        measure(options.width, options.cycles, options.profiler, options.others)


if __name__ == "__main__":
    main()
