"""The subjects: each saves a state tree to a folder and loads it again, in its own way."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

Tree = dict[str, torch.Tensor]


@dataclass
class Subject:
    """A way to save.

    Attributes:
        save: Starts a save and returns what waits until it is durable; its own time is the stall.
        load: Returns the newest state.
        settle: Waits for what comes after: an older checkpoint is removed once the new one exists.
        close: Ends it.
    """

    save: Callable[[Tree], Callable[[], None]]
    load: Callable[[], Tree]
    settle: Callable[[], None] = lambda: None
    close: Callable[[], None] = lambda: None


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def torch_save(folder: Path) -> Subject:
    """``torch.save`` and fsync, as a loop writes it."""
    target = folder / "state.pt"

    def save(tree: Tree) -> Callable[[], None]:
        torch.save(tree, target)
        _sync(target)
        return lambda: None

    return Subject(save, lambda: torch.load(target, weights_only=True))


def lightning_io(folder: Path) -> Subject:
    """Lightning's default: ``TorchCheckpointIO``, which does not sync."""
    from lightning.pytorch.plugins.io import TorchCheckpointIO

    target, plugin = folder / "state.ckpt", TorchCheckpointIO()

    def save(tree: Tree) -> Callable[[], None]:
        plugin.save_checkpoint(tree, str(target))
        return lambda: None

    return Subject(save, lambda: plugin.load_checkpoint(str(target), weights_only=True))


def lightning_async(folder: Path) -> Subject:
    """Lightning's ``AsyncCheckpointIO``: clones, then a thread with a queue."""
    from lightning.pytorch.plugins.io import AsyncCheckpointIO, TorchCheckpointIO

    target, plugin = folder / "state.ckpt", AsyncCheckpointIO(TorchCheckpointIO())

    def save(tree: Tree) -> Callable[[], None]:
        plugin.save_checkpoint(tree, str(target))
        done: Future[None] = plugin._executor.submit(lambda: None)
        return done.result

    return Subject(
        save,
        lambda: TorchCheckpointIO().load_checkpoint(str(target), weights_only=True),
        close=plugin.teardown,
    )


def dcp_async(folder: Path) -> Subject:
    """``torch.distributed.checkpoint.async_save`` on one rank."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    if not dist.is_initialized():
        store = dist.HashStore()
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    shapes: dict[str, Any] = {}
    number = 0

    def save(tree: Tree) -> Callable[[], None]:
        nonlocal number
        number += 1
        shapes.update({name: tensor.shape for name, tensor in tree.items()})
        shutil.rmtree(folder / str(number - 1), ignore_errors=True)
        done = dcp.async_save(tree, checkpoint_id=str(folder / str(number)))
        return lambda: done.result() and None

    def load() -> Tree:
        tree = {name: torch.empty(shape) for name, shape in shapes.items()}
        dcp.load(tree, checkpoint_id=str(folder / str(number)))
        return tree

    return Subject(save, load, close=dist.destroy_process_group)


def costlens(folder: Path) -> Subject:
    """costlens: a snapshot into memory that is reused; hashed, written and synced by its thread."""
    from costlens.protect.commit import Committer
    from costlens.protect.keeper import Keeper
    from costlens.protect.manifest import CheckpointName, Manifest
    from costlens.protect.shelf import Shelf
    from costlens.protect.snapshot import HostBuffer, load_tree
    from costlens.protect.writer import SaveJob, Writer
    from costlens.storage.store import Store

    store = Store(str(folder))
    shelf, buffer = Shelf(store, "bench"), HostBuffer()
    facts = {"run_id": "bench", "costlens_version": "0"}
    exists = threading.Event()

    class Telling(Committer):
        def commit(self, name: CheckpointName, manifest: Manifest) -> str:
            key = super().commit(name, manifest)
            exists.set()
            return key

    keeper = Keeper(Telling(store, "bench"), shelf, 2, lambda: facts)
    writer = Writer(time.perf_counter_ns)
    number = 0

    def save(tree: Tree) -> Callable[[], None]:
        nonlocal number
        number += 1
        snapshot = buffer.take(tree)
        name = CheckpointName.new(number, 1, time.time())
        job = SaveJob(
            name,
            "interval",
            0,
            time.perf_counter_ns(),
            lambda: keeper.publish(name, "interval", snapshot, time.time()),
        )
        exists.clear()
        assert writer.submit(job)
        return lambda: exists.wait(600) and None

    def settle() -> None:
        assert writer.wait(600)
        for result in writer.take_results():
            if result.error is not None:
                raise result.error

    def load() -> Tree:
        loaded = shelf.load_newest(0)
        assert loaded is not None
        tree: Tree = load_tree(loaded.skeleton, loaded.buffer)
        return tree

    def close() -> None:
        assert writer.close(60)

    return Subject(save, load, settle, close)


SUBJECTS: dict[str, Callable[[Path], Subject]] = {
    "torch.save + fsync": torch_save,
    "Lightning TorchCheckpointIO": lightning_io,
    "Lightning AsyncCheckpointIO": lightning_async,
    "DCP async_save": dcp_async,
    "costlens": costlens,
}
