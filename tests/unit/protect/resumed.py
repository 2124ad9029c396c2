"""Trains small models with dropout, whole or from a saved state; run as a script in a new process.

``python resumed.py save FOLDER`` trains every configuration to its end without a break, and leaves
the bytes of a state taken on the way. ``python resumed.py resume FOLDER`` goes on from each. Both
print what every step lost, and a digest of the final weights.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
import zlib
from collections.abc import Callable
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

from costlens.protect.snapshot import HostBuffer, load_tree
from costlens.protect.state import TrainingState

NUM_PASSES = 3
SAVED_PASS = 1


@dataclass(frozen=True)
class Configuration:
    """One row of the matrix."""

    loader: str
    num_workers: int
    point: str
    accumulation: int

    @property
    def name(self) -> str:
        """Return the name of the row."""
        return "-".join(map(str, astuple(self)))


MATRIX = [
    Configuration(*row)
    for row in itertools.product(("plain", "stateful"), (0, 2), ("mid", "last", "end"), (1, 2))
]


class Job:
    """One training: six batches a pass, the last of two samples."""

    def __init__(self, configuration: Configuration, seed: int) -> None:
        self.configuration = configuration
        for seeding in (random.seed, np.random.mtrand._rand.seed, torch.manual_seed):
            seeding(seed)
        made = torch.Generator().manual_seed(0)
        self.data = TensorDataset(
            torch.randn(22, 8, generator=made), torch.randn(22, 1, generator=made)
        )
        self.model = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.Dropout(0.3), torch.nn.ReLU(), torch.nn.Linear(16, 1)
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 3, 0.9)
        kind = DataLoader if configuration.loader == "plain" else StatefulDataLoader
        self.loader = kind(self.data, 4, shuffle=True, num_workers=configuration.num_workers)
        self.losses: list[str] = []
        self.step = 0
        self.late: list[str] = []
        self.state = TrainingState(
            model=self.model,
            optimizer=self.optimizer,
            scheduler=self.scheduler,
            loader=self.loader,
            counters=lambda: {"optimizer_steps": self.step},
            report=self.late.append,
        )

    def run(self, save: Callable[[], None] = lambda: None) -> dict[str, Any]:
        """Train to the end; ``save`` is called once, at the point that the configuration names."""
        point = self.configuration.point
        for epoch in range(self.state.num_passes, NUM_PASSES):
            for index, (inputs, targets) in enumerate(self.loader, 1):
                self._train(inputs, targets, index)
                if epoch == SAVED_PASS and index == {"mid": 4, "last": 6}.get(point):
                    save()
            # What a loop does between two passes draws, too
            self.losses.append(f"validated {self._loss(*self.data[:8]).item().hex()}")
            if epoch == SAVED_PASS and point == "end":
                save()
        weights = b"".join(p.detach().numpy().tobytes() for p in self.model.parameters())
        return {
            "losses": self.losses,
            "weights": zlib.crc32(weights),
            "step": self.step,
            "late": self.late,
        }

    def _train(self, inputs: torch.Tensor, targets: torch.Tensor, index: int) -> None:
        loss = self._loss(inputs, targets)
        loss.backward()
        self.losses.append(loss.item().hex())
        if index % self.configuration.accumulation == 0:
            self.optimizer.step()
            self.scheduler.step()
            self.optimizer.zero_grad()
            self.step += 1

    def _loss(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        noise = random.random() + float(np.random.mtrand._rand.standard_normal())
        return torch.nn.functional.mse_loss(self.model(inputs) + 0.01 * noise, targets)


def save(folder: Path) -> dict[str, Any]:
    """Train each configuration without a break."""
    results = {}
    for configuration in MATRIX:
        job = Job(configuration, seed=7)
        buffer, taken = HostBuffer(), {}

        def take(job: Job = job, buffer: HostBuffer = buffer, taken: Any = taken) -> None:
            snapshot = buffer.take(job.state.gather(job.step))
            taken["num_losses"] = len(job.losses)
            taken["inexact"] = job.state.inexact()
            (folder / f"{job.configuration.name}.skeleton").write_bytes(snapshot.skeleton)
            (folder / f"{job.configuration.name}.data").write_bytes(snapshot.view())

        results[configuration.name] = {**job.run(take), **taken}
    return results


def resume(folder: Path) -> dict[str, Any]:
    """Go on from each state, from other seeds and other weights."""
    results = {}
    for configuration in MATRIX:
        job = Job(configuration, seed=1234)
        data = bytearray((folder / f"{configuration.name}.data").read_bytes())
        tree = load_tree(
            (folder / f"{configuration.name}.skeleton").read_bytes(),
            torch.frombuffer(data, dtype=torch.uint8),
        )
        inexact = job.state.restore(tree)
        data[:] = bytes(len(data))  # nothing may still live in the checkpoint's memory
        job.step = job.state.counters["optimizer_steps"]
        results[configuration.name] = {**job.run(), "inexact": inexact}
    return results


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps({"save": save, "resume": resume}[sys.argv[1]](Path(sys.argv[2]))))
