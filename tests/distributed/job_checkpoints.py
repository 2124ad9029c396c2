"""A plain loop of two ranks with checkpoints: ``job_checkpoints.py KIND STEPS FOLDER``.

KIND is ``lockstep`` (ranks meet in a collective every step), ``skewed`` (they never meet, rank 1
is three times as slow), ``sharded`` (FSDP splits the parameters), ``gathered`` (the same model in
one piece), ``alone`` (no process group), ``budget`` (lockstep under a budget that is spent soon),
``again`` (the run is opened a second time), ``validating`` (lockstep with a long validation after
step 3) or ``broken`` (rank 1 can write no data).
Prints a line a step, so that whoever kills a rank knows where it is, and leaves the digest of each
rank's final state in FOLDER.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

import costlens
from costlens.errors import StorageError
from costlens.storage.store import Store
from tests.resume.digest import digest_of

STEP_S = float(os.environ.get("STEP_S", "0.03"))
WIDTH = int(os.environ.get("WIDTH", "64"))
VALIDATION_S = 4.0


def tell(*words: object) -> None:
    """Print one line in one write, so that lines of two ranks do not mix."""
    os.write(1, (" ".join(str(word) for word in words) + "\n").encode())


def break_store() -> None:
    """Let the store of this process take no part of a checkpoint."""

    def refuse(self: Store, objects: Mapping[str, memoryview], *, durable: bool = False) -> None:
        raise StorageError(13, "Permission denied", next(iter(objects)))

    Store.put_many = refuse  # type: ignore[method-assign,assignment]


class Whole:
    """An object whose state has every sharded tensor in one piece; made by all ranks together."""

    def __init__(self, owner: Any) -> None:
        self.state = self._gather(owner.state_dict())

    def state_dict(self) -> Any:
        """Return the state."""
        return self.state

    def _gather(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._gather(item) for key, item in value.items()}
        return value.full_tensor() if hasattr(value, "full_tensor") else value


def tell_whole(step: int, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Print a digest of the whole state, the same on every rank."""
    tell("WHOLE", os.environ["RANK"], step, digest_of(Whole(model), Whole(optimizer)))


def train(
    run: costlens.Run,
    kind: str,
    num_steps: int,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: DataLoader,
) -> int:
    """Go on from the newest checkpoint until the end or a stop, and return the steps done."""
    rank = int(os.environ["RANK"])
    checkpoints = run.checkpoints(model=model, optimizer=optimizer, loader=loader)
    step = checkpoints.resume()
    tell("RESUMED", rank, step)
    if kind in {"sharded", "gathered"}:
        tell_whole(step, model, optimizer)
    while step < num_steps and not run.should_stop:
        for features, targets in run.batches(loader):
            with run.iteration(samples=len(features)):
                (model(features) - targets).square().mean().backward()
                if kind not in {"skewed", "sharded", "gathered"}:
                    for parameter in model.parameters():
                        dist.all_reduce(parameter.grad)
                optimizer.step()
                optimizer.zero_grad()
                time.sleep(3 * STEP_S if kind == "skewed" and rank == 1 else STEP_S)
            step += 1
            tell("STEP", rank, step)
            checkpoints.step()
            if kind == "validating" and step == 3:
                with run.phase("validation"):
                    time.sleep(VALIDATION_S)
            if step == num_steps:
                break
    if kind in {"sharded", "gathered"}:
        tell_whole(step, model, optimizer)
    return step


def main(kind: str, num_steps: int, folder: Path) -> None:
    """Train, and write the digest of the final state."""
    if kind != "alone":
        dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    tell("PID", rank, os.getpid())
    torch.set_num_threads(1)
    torch.manual_seed(7)
    model = torch.nn.Sequential(
        torch.nn.Linear(8, WIDTH), torch.nn.Dropout(0.3), torch.nn.Linear(WIDTH, 1)
    )
    if kind == "sharded":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for layer in (model[0], model[2], model):
            fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    torch.manual_seed(11 + rank)
    data = TensorDataset(torch.randn(44, 8), torch.randn(44, 1))
    loader = DataLoader(data, batch_size=4, shuffle=True)
    if kind == "broken" and rank == 1:
        break_store()
    with costlens.start("job") as run:
        run.watch(model, optimizer)
        step = train(run, kind, num_steps, model, optimizer, loader)
    if kind == "again":
        with run:
            step = train(run, kind, num_steps + 5, model, optimizer, loader)
    (folder / f"digest-{rank}").write_text(f"{step} {digest_of(model, optimizer)}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
