"""One whole training in a process of its own: ``python -m benchmarks.overhead.job bare 12000``.

``process.py`` starts it, with costlens or without, and reads the line of JSON that it prints.
"""

from __future__ import annotations

import gc
import json
import logging
import sys
import time
import warnings
from array import array
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, IterableDataset

from benchmarks.overhead.training import Model
from costlens.core.recorder import Recorder
from costlens.core.timeline import Timeline

SETTLING = 1000
"""Most steps before anything is measured: allocators and caches fill."""


class Steps(IterableDataset):
    """Gives the same batch again and again and reads the clocks in between.

    Args:
        num: Steps that are measured.
    """

    def __init__(self, num: int) -> None:
        self.row = torch.randn(16, 32)
        self.at_ns = array("q", bytes(8 * (num + 1)))
        self.num_full_collections = 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        for _ in range(min(SETTLING, len(self.at_ns))):
            yield self.row
        gc.callbacks.append(self._count)
        self.begin_bytes = psutil.Process().memory_info().rss
        begin_ns = time.process_time_ns() - time.thread_time_ns()
        for number in range(len(self.at_ns)):
            self.at_ns[number] = time.perf_counter_ns()
            yield self.row
        self.behind_ns = time.process_time_ns() - time.thread_time_ns() - begin_ns
        self.end_bytes = psutil.Process().memory_info().rss
        gc.callbacks.remove(self._count)

    def _count(self, phase: str, info: dict[str, int]) -> None:
        self.num_full_collections += phase == "start" and info["generation"] == 2

    def describe(self) -> dict[str, float]:
        """Return what was measured: microseconds, bytes and counts."""
        num = len(self.at_ns) - 1
        took_us = sorted((self.at_ns[at + 1] - self.at_ns[at]) / 1000 for at in range(num))
        return {
            "num_steps": num,
            "median_us": took_us[num // 2],
            "p99_us": took_us[num * 99 // 100],
            "p999_us": took_us[num * 999 // 1000],
            "max_us": took_us[-1],
            "threads_us": self.behind_ns / num / 1000,
            "growth_bytes": self.end_bytes - self.begin_bytes,
            "num_full_collections": self.num_full_collections,
            "peak_bytes": _peak_bytes(),
        }


def _peak_bytes() -> int:
    # What getrusage says begins with the parent's.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


class Watched:
    """Makes the callback and takes the time until it is ready."""

    ready_s = 0.0

    def make(self) -> list[pl.Callback]:
        """Return the callbacks of a training that is watched."""
        began_s = time.perf_counter()
        from costlens.lightning import CostLensCallback

        callback = CostLensCallback("overhead")
        plain, self.ready_s = callback.setup, time.perf_counter() - began_s

        def setup(*args: object, **kwargs: object) -> None:
            began_s = time.perf_counter()
            plain(*args, **kwargs)
            self.ready_s += time.perf_counter() - began_s

        callback.setup = setup
        return [callback]


def main() -> None:
    """Train, and print what it took; the time of the last step comes last."""
    kind, num = sys.argv[1], int(sys.argv[2])
    warnings.simplefilter("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    steps, watched = Steps(num), Watched()
    trainer = pl.Trainer(
        accelerator="cpu",
        callbacks=watched.make() if kind == "costlens" else [],
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
        logger=False,
        max_epochs=1,
    )
    # It is there, in full, before the steps that are measured.
    ring_bytes = sys.getsizeof(Recorder(Timeline(time.perf_counter_ns, 0))._ring)
    ring_bytes *= kind == "costlens"
    trainer.fit(Model((32, 64, 32)), DataLoader(steps, batch_size=None))
    # The clock of the whole machine, so that the parent can go on from the last step.
    left_s = time.clock_gettime(time.CLOCK_MONOTONIC)
    left_s -= (time.perf_counter_ns() - steps.at_ns[-1]) / 1e9
    measured = steps.describe() | {"ready_s": watched.ready_s, "ring_bytes": ring_bytes}
    measured["growth_bytes"] += ring_bytes
    print(json.dumps(measured | {"left_s": left_s}), flush=True)


if __name__ == "__main__":
    main()
