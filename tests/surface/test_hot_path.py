"""What a watched step may cost, in things that can be counted: calls, objects, collections, bytes.

Times belong in ``benchmarks/``; these figures are the same on every machine and must never grow
unseen.
"""

from __future__ import annotations

import gc
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, IterableDataset

import costlens
from benchmarks.overhead.training import Model
from costlens.lightning import CostLensCallback

PACKAGE = str(Path(costlens.__file__).parent)
OTEL = "opentelemetry"


class Calls:
    """Counts what runs on this thread while it is on: our frames, and everybody's of OTel."""

    def __init__(self) -> None:
        self.ours: Counter[str] = Counter()
        self.num_clocks = 0
        self.num_otel = 0

    def begin(self) -> None:
        """Count from here."""
        sys.setprofile(self._see)

    def end(self) -> None:
        """Count up to here."""
        sys.setprofile(None)

    def _see(self, frame: FrameType, event: str, called: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(PACKAGE):
            self.ours[f"{name.removeprefix(PACKAGE)}:{frame.f_code.co_name}"] += 1
        elif event == "call" and OTEL in name:
            self.num_otel += 1
        elif event == "c_call" and getattr(called, "__name__", "") == "perf_counter_ns":
            self.num_clocks += name.startswith(PACKAGE)


class Steps(IterableDataset):
    """Gives a batch again and again, and does something before some of them.

    Args:
        num: How many.
        at: What is done before the batch of that number.
    """

    def __init__(self, num: int, at: dict[int, Callable[[], object]]) -> None:
        self.num, self.at, self.row = num, at, torch.randn(4, 8)

    def __iter__(self) -> Iterator[torch.Tensor]:
        for number in range(self.num):
            self.at.get(number, bool)()
            yield self.row


def train(
    num: int, at: dict[int, Callable[[], object]], callback: CostLensCallback | None = None
) -> None:
    """Let costlens watch a training of Lightning."""
    callback = callback or CostLensCallback("hot-path")
    trainer = pl.Trainer(
        accelerator="cpu",
        callbacks=[callback],
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
        logger=False,
        max_epochs=1,
    )
    trainer.fit(Model((8, 8)), DataLoader(Steps(num, at), batch_size=None))


def test_a_step_of_lightning_makes_few_calls() -> None:
    """Of ours at most 42 a step, with 14 readings of the clock, and none of OpenTelemetry."""
    calls, num = Calls(), 20
    train(40, {10: calls.begin, 10 + num: calls.end})
    per_step = sum(calls.ours.values()) / num
    assert per_step <= 42, calls.ours
    assert calls.num_clocks / num <= 14
    assert calls.num_otel == 0


def test_a_step_of_a_plain_loop_makes_few_calls() -> None:
    """Of ours at most 16 with batches and iteration, 45 with hooks; a clock for every edge."""
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    seen = []
    with costlens.Run(costlens.Config(summary=False), exporters=[]) as run:
        for is_watched in (False, True):
            if is_watched:
                run.watch(model, optimizer)
            calls = Calls()
            for number, batch in enumerate(run.batches([torch.ones(4, 8)] * 40)):
                if number == 10:
                    calls.begin()
                with run.iteration(tokens=8, samples=4):
                    model(batch).sum().backward()
                    optimizer.step()
                if number == 29:
                    calls.end()
            seen.append((sum(calls.ours.values()) / 20, calls.num_clocks / 20, calls.num_otel))
    (plain, plain_clocks, plain_otel), (watched, watched_clocks, watched_otel) = seen
    assert (plain_otel, watched_otel) == (0, 0)
    assert plain <= 16, seen
    assert plain_clocks <= 4, seen
    assert watched <= 45, seen
    assert watched_clocks <= 10, seen


def test_watching_causes_no_full_collection() -> None:
    """Over some thousand steps the collector has no old objects of ours to look through."""
    full: list[int] = []

    def see(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            full.append(1)

    def begin() -> None:
        gc.collect()  # what was made before is not what is looked for
        gc.callbacks.append(see)

    try:
        train(4000, {100: begin, 3900: lambda: gc.callbacks.remove(see)})
    finally:
        if see in gc.callbacks:
            gc.callbacks.remove(see)
    assert not full


def test_watching_keeps_no_memory_a_step() -> None:
    """Between two points of a training nothing grows with the steps between them."""
    sizes: list[int] = []
    callback = CostLensCallback("weighed")

    def weigh() -> None:
        # What is on its way to the pipeline thread is no growth.
        for _ in range(100):
            if not callback.run.parts.values._ready:
                break
            time.sleep(0.05)
        gc.collect()
        sizes.append(tracemalloc.get_traced_memory()[0])

    tracemalloc.start()
    try:
        train(1300, dict.fromkeys((300, 600, 900, 1200), weigh), callback)
    finally:
        tracemalloc.stop()
    # A window that closes in between is one interval's; what grows with steps is in all of them.
    assert min(after - before for before, after in pairwise(sizes)) < 300 * 32, sizes
