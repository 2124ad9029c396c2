"""Checkpoints for the contract tests: states that know their step, saved and looked up."""

from __future__ import annotations

import time

import torch

from costlens.protect.commit import Committer
from costlens.protect.manifest import CheckpointName, Manifest, Shard
from costlens.protect.shelf import Shelf
from costlens.protect.snapshot import HostBuffer, Snapshot, load_tree
from costlens.storage.store import Store

RUN = "gpt-small"
NUM_VALUES = 100_000


def weight_at(step: int) -> torch.Tensor:
    """Return the random weight that a state of this step has."""
    return torch.rand(NUM_VALUES, generator=torch.Generator().manual_seed(step))


def snapshot_at(step: int, buffer: HostBuffer | None = None) -> Snapshot:
    """Return the snapshot of the state of a step."""
    return (buffer or HostBuffer()).take({"weight": weight_at(step), "step": step})


def manifest_of(name: CheckpointName, shard: Shard, run_id: str = RUN) -> Manifest:
    """Return what makes a shard a checkpoint."""
    return Manifest(
        run_id=run_id,
        attempt=name.attempt,
        step=name.step,
        kind="interval",
        created_time=time.time(),
        world_size=1,
        shards=[shard],
        costlens_version="0",
        torch_version=torch.__version__,
    )


def save(store: Store, step: int, run_id: str = RUN) -> CheckpointName:
    """Save the state of a step."""
    name, snapshot = CheckpointName.new(step, 1, time.time()), snapshot_at(step)
    committer = Committer(store, run_id, sleep=lambda _seconds: None)
    shard = committer.write_shard(name, 0, snapshot.skeleton, snapshot.view())
    committer.commit(name, manifest_of(name, shard, run_id))
    return name


def newest_step(shelf: Shelf) -> int | None:
    """Return the step of the state that a resume would get, after comparing every value of it."""
    loaded = shelf.load_newest()
    if loaded is None:
        return None
    tree = load_tree(loaded.skeleton, loaded.buffer)
    assert tree["step"] == loaded.found.name.step
    assert torch.equal(tree["weight"], weight_at(tree["step"]))
    return int(tree["step"])
