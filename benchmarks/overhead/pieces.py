"""Where the microseconds go: each piece of costlens timed inside a real training.

Every bracket, hook and row is timed by two clock readings around it; what such a pair takes itself
is subtracted. Pieces are slower here than in a loop of their own, for the training empties caches.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, IterableDataset

from benchmarks.overhead.training import Model
from costlens.lightning import CostLensCallback

_NUM_PAIRS = 10_000
Times = dict[str, list[int]]


class _Timed:
    """A scope with the time that entering and leaving it take."""

    def __init__(self, scope: Any, name: str, times: Times) -> None:
        self.enter, self.exit = scope.__enter__, scope.__exit__
        self.entering, self.leaving = times[f"{name}, entered"], times[f"{name}, left"]

    def __enter__(self) -> None:
        enter = self.enter
        begin_ns = time.perf_counter_ns()
        enter()
        self.entering.append(time.perf_counter_ns() - begin_ns)

    def __exit__(self, *error: object) -> None:
        leave = self.exit
        begin_ns = time.perf_counter_ns()
        leave(*error)
        self.leaving.append(time.perf_counter_ns() - begin_ns)


def _timed(call: Callable[..., Any], kept: list[int]) -> Callable[..., Any]:
    def timed(*args: Any) -> Any:
        begin_ns = time.perf_counter_ns()
        result = call(*args)
        kept.append(time.perf_counter_ns() - begin_ns)
        return result

    return timed


class _Taker(pl.Callback):
    """Puts the clocks around everything once the training starts."""

    def __init__(self, ours: CostLensCallback, times: Times) -> None:
        self.ours, self.times = ours, times

    def on_train_start(self, trainer: pl.Trainer, *_: Any) -> None:
        """Wrap what runs in every step."""
        watch, scopes = self.ours._watch, trainer.profiler._scopes
        make = scopes._make
        scopes.clear()
        scopes._make = lambda name: _Timed(make(name), name.rpartition(".")[2], self.times)
        recorder = watch._recorder
        recorder.cut = _timed(recorder.cut, self.times["(of it: a row)"])
        self.ours._end_batch = _timed(self.ours._end_batch, self.times["our hook at a batch's end"])
        for name in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"):
            hooks = getattr(trainer.optimizers[0], name)
            for key, hook in hooks.items():
                hooks[key] = _timed(hook, self.times["our hook after an optimizer's step"])
        trainer.callbacks.remove(self)


class _Batches(IterableDataset):
    def __init__(self, num: int) -> None:
        self.num, self.row = num, torch.randn(16, 32)

    def __iter__(self) -> Iterator[torch.Tensor]:
        for _ in range(self.num):
            yield self.row


def measure_pieces(num: int) -> dict[str, float]:
    """Return the microseconds of each piece of a step: medians over ``num`` steps."""
    times: Times = defaultdict(list)
    ours = CostLensCallback("pieces")
    trainer = pl.Trainer(
        accelerator="cpu",
        callbacks=[ours, _Taker(ours, times)],
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
        logger=False,
        max_epochs=1,
    )
    trainer.fit(Model((32, 64, 32)), DataLoader(_Batches(num), batch_size=None))
    pair: list[int] = []
    empty = _timed(lambda: None, pair)
    for _ in range(_NUM_PAIRS):
        empty()
    clock_ns = statistics.median(pair)
    return {
        name: max(0.0, statistics.median(seen) - clock_ns) / 1000
        for name, seen in times.items()
        if len(seen) > num / 2
    }


def tell_pieces(pieces: dict[str, float]) -> list[str]:
    """Return a table of the pieces that cost anything; the others are one line."""
    dear = {name: us for name, us in pieces.items() if us >= 0.2}
    rest_us = sum(us for name, us in pieces.items() if name not in dear)
    total_us = sum(us for name, us in pieces.items() if not name.startswith("("))
    lines = ["| piece of a watched step | µs |", "| --- | ---: |"]
    lines += [f"| {name} | {us:.1f} |" for name, us in dear.items()]
    lines.append(
        f"| {len(pieces) - len(dear)} more, mostly brackets without a phase | {rest_us:.1f} |"
    )
    return [*lines, f"| all of it | {total_us:.1f} |"]
