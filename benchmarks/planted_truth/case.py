"""One case: which loop, how it loads and accumulates, and what came out of it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from benchmarks.planted_truth.plants import PlantedDataset, Plants
from costlens.core.records import RankRecord
from costlens.run import Run

__all__ = ["BATCH_SIZE", "EPOCHS", "NUM_BATCHES", "Case", "Result", "before_ns", "make_loader"]

BATCH_SIZE = 4
NUM_BATCHES = 8
EPOCHS = 3


@dataclass(frozen=True, slots=True)
class Case:
    """A loop to plant delays in.

    Args:
        loop: ``lightning``, ``manual`` (Lightning, manual optimization) or ``plain``.
        num_workers: Loader workers.
        accumulation: Micro-batches per optimizer step.
    """

    loop: str
    num_workers: int
    accumulation: int

    def __str__(self) -> str:
        return f"{self.loop}, {self.num_workers} workers, accumulation {self.accumulation}"


@dataclass(frozen=True, slots=True)
class Result:
    """What one pass of a case gave.

    Args:
        record: The rank's record.
        plants: The plants with their own clocks.
        outside_ns: Time from the start of watching to the end of training, by a clock outside of
            costlens.
        before_ns: Time before the start of watching that the record holds, such as imports.
    """

    record: RankRecord
    plants: Plants
    outside_ns: int
    before_ns: int

    @property
    def inside_ns(self) -> int:
        """Return the same time as costlens booked it."""
        after_ns = self.record.time_ns["shutdown"] + self.record.time_ns["idle"]
        return self.record.total_ns - self.before_ns - after_ns

    @property
    def other_ns(self) -> float:
        """Return the loop's own bookkeeping per micro-batch, in nanoseconds."""
        return self.record.time_ns["other"] / self.record.progress.micro_batches


def before_ns(run: Run) -> int:
    """Return how long the record of a run goes back before it was opened."""
    state = run.parts.state
    return 0 if state.watch_start_ns is None else state.watch_start_ns - state.start_ns


def make_loader(case: Case, plants: Plants) -> torch.utils.data.DataLoader:  # type: ignore[type-arg]
    """Return the training loader of a case."""
    spin_ns = plants.spin_ns if "dataset" in plants.places else 0
    dataset = PlantedDataset(NUM_BATCHES * BATCH_SIZE, BATCH_SIZE, spin_ns)
    return torch.utils.data.DataLoader(dataset, batch_size=BATCH_SIZE, num_workers=case.num_workers)
