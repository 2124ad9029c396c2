"""One Lightning training in which the subject changes every few steps, in random order.

``measure_lightning`` runs it: first the cycles, in which each block is compared with the bare block
of its own cycle, then a stretch for each subject that has threads or processes of its own.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, IterableDataset

from benchmarks.lightning_overhead import BLOCK, SETTLING, WARM_UP_CYCLES
from benchmarks.overhead.clocks import Tasks, read_behind_ns
from benchmarks.overhead.subject import Subject
from benchmarks.overhead.table import Row, compare

HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")


@dataclass(frozen=True)
class Plan:
    """How long everything takes.

    Args:
        cycles: Blocks of each subject that count.
        stretch_s: Seconds that a subject with threads of its own runs alone; 0 leaves that out.
        sizes: Of the model's layers; decide how long a step takes.
        num_rows: Of a batch.
    """

    cycles: int = 120
    stretch_s: float = 10.0  # one window of costlens
    sizes: tuple[int, ...] = (32, 64, 32)
    num_rows: int = 16


class Model(pl.LightningModule):
    """A perceptron.

    Args:
        sizes: Of its layers.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        layers = [
            layer for pair in pairwise(sizes) for layer in (torch.nn.Linear(*pair), torch.nn.ReLU())
        ]
        self.net = torch.nn.Sequential(*layers[:-1])

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        """Return the loss."""
        return self.net(batch).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Bench(pl.Callback):
    """Arms the subjects and changes between them; training thread only.

    Args:
        subjects: All of them, the bare one first.
    """

    def __init__(self, subjects: Sequence[Subject]) -> None:
        self.subjects = subjects
        self.current = subjects[0]

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Arm all subjects: what starts now is theirs."""
        self.trainer, self.module, self.plain = trainer, pl_module, trainer.profiler
        for subject in self.subjects:
            before = Tasks.list()
            subject.arm(trainer, pl_module)
            tasks = subject.tasks = Tasks.list() - before
            say(f"{subject.name}: {len(tasks.threads)} threads, {len(tasks.processes)} processes")

    def on_train_start(self, trainer: pl.Trainer, *_: Any) -> None:
        """Let each subject begin, on an optimizer without the hooks of the others."""
        (self.optimizer,) = trainer.optimizers
        for subject in self.subjects:
            subject.hooks = {name: OrderedDict() for name in HOOKS}
            vars(self.optimizer).update(subject.hooks)
            subject.begin(trainer, self.module)

    def separate(self) -> None:
        """Take the subjects apart: up to here their profilers stood behind one another."""
        for subject in self.subjects:
            subject.separate(self.plain)

    def change(self, subject: Subject) -> None:
        """Put another subject on."""
        self.current.leave(self.trainer, self.module)
        self.current = subject
        self.trainer.profiler = subject.profiler or self.plain
        self.trainer.callbacks = subject.callbacks
        self.trainer.loggers = subject.loggers
        self.trainer.log_every_n_steps = subject.log_every_n_steps
        vars(self.optimizer).update(subject.hooks)
        subject.enter(self.trainer, self.module)


class Switch(IterableDataset):
    """The loader's dataset: between two batches it changes the subject and reads the clocks.

    Args:
        bench: Changes the subject.
        plan: How long.
    """

    def __init__(self, bench: Bench, plan: Plan) -> None:
        self.bench, self.plan = bench, plan
        self.row = torch.randn(plan.num_rows, plan.sizes[0])
        names = [subject.name for subject in bench.subjects]
        self.cost_us: dict[str, list[float]] = {name: [] for name in names}
        self.wall_us: dict[str, list[float]] = {name: [] for name in names}
        self.behind_us: dict[str, tuple[float, float]] = {}
        self.num_steps = dict.fromkeys(names, 0)

    def __iter__(self) -> Iterator[torch.Tensor]:
        yield self.row  # Lightning reads ahead, before the training starts
        self.bench.separate()
        order = list(self.bench.subjects)
        for cycle in range(-WARM_UP_CYCLES, self.plan.cycles):
            random.shuffle(order)
            for subject in order:
                self.bench.change(subject)
                yield from self._run(SETTLING)
                began_ns, begin_ns = time.perf_counter_ns(), time.thread_time_ns()
                yield from self._run(BLOCK)
                spent_ns, took_ns = time.thread_time_ns() - begin_ns, time.perf_counter_ns()
                if cycle >= 0:
                    self.cost_us[subject.name].append(spent_ns / BLOCK / 1000)
                    self.wall_us[subject.name].append((took_ns - began_ns) / BLOCK / 1000)
            if cycle % 20 == 0:
                say(f"cycle {cycle} of {self.plan.cycles}")
        bare, *others = self.bench.subjects
        if self.plan.stretch_s:
            yield from self._stretch(bare, (0.0, 0.0))
            nobody = self.behind_us.pop(bare.name)
            for subject in others:
                if subject.is_measured_alone:
                    yield from self._stretch(subject, nobody)
        self.bench.change(bare)
        yield self.row

    def _run(self, num: int) -> Iterator[torch.Tensor]:
        self.num_steps[self.bench.current.name] += num
        for _ in range(num):
            yield self.row

    def _stretch(self, subject: Subject, nobody: tuple[float, float]) -> Iterator[torch.Tensor]:
        """Run a subject alone; ``nobody`` is what is behind a bare step, whoever it belongs to."""
        self.bench.change(subject)
        subject.begin_alone()
        foreign = [other.tasks for other in self.bench.subjects if other is not subject]
        yield from self._run(SETTLING)
        begin_ns, num = read_behind_ns(subject.tasks, foreign), 0
        end_s = time.perf_counter() + self.plan.stretch_s * subject.stretch_share
        while time.perf_counter() < end_s:
            yield from self._run(BLOCK)
            num += BLOCK
        end_ns = read_behind_ns(subject.tasks, foreign)
        subject.end_alone()
        threads_us, processes_us = (
            (end - begin) / num / 1000 - base
            for begin, end, base in zip(begin_ns, end_ns, nobody, strict=True)
        )
        say(f"{subject.name}: {num} steps alone, {threads_us:.2f} + {processes_us:.2f} µs")
        self.behind_us[subject.name] = (threads_us, processes_us)


def say(text: str) -> None:
    """Print progress where it does not get into the table."""
    print(text, file=sys.stderr, flush=True)


def measure_lightning(subjects: Sequence[Subject], plan: Plan) -> tuple[float, list[Row]]:
    """Return the bare step in microseconds of CPU, and a row for each of the other subjects.

    Args:
        subjects: All that can be armed, the bare one first.
        plan: How long.

    Raises:
        AssertionError: If a subject did not do its work.
    """
    bench = Bench(subjects)
    switch = Switch(bench, plan)
    module = Model(plan.sizes)
    trainer = pl.Trainer(
        accelerator="cpu",
        callbacks=[bench],
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
        logger=False,
        max_epochs=1,
    )
    trainer.fit(module, DataLoader(switch, batch_size=None))
    bare, *others = subjects
    for subject in others:
        subject.check(switch.num_steps[subject.name])
        subject.close(trainer, module)
    none = (0.0, 0.0) if plan.stretch_s else None
    rows = [
        Row(
            subject.name,
            compare(switch.cost_us[subject.name], switch.cost_us[bare.name]),
            compare(switch.wall_us[subject.name], switch.wall_us[bare.name]),
            switch.behind_us.get(subject.name, none),
            subject.delivers,
        )
        for subject in others
    ]
    return statistics.median(switch.cost_us[bare.name]), rows
