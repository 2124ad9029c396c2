"""Saves for ever, and is killed: a process that forks a writer for each command on its input.

``STEP STAGE`` starts a writer that saves from STEP on. It stops itself where STAGE says and waits
to be killed, or never (``none``). Output: ``pid N``, ``durable STEP`` after each commit, ``at
STAGE`` once it has stopped, and ``ended`` when it is gone. Torch is imported before the forks.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

from costlens.protect import commit as commit_module
from costlens.protect import snapshot as snapshot_module
from costlens.protect.commit import Committer
from costlens.protect.manifest import CheckpointName
from costlens.protect.shelf import Shelf
from costlens.protect.snapshot import HostBuffer
from costlens.storage.store import Store
from tests.contract.saves import RUN, manifest_of, snapshot_at


def say(text: str) -> None:
    """Write a line at once."""
    os.write(1, f"{text}\n".encode())


def stop(stage: str) -> None:
    """Wait to be killed."""
    say(f"at {stage}")
    time.sleep(600)


class Stopping(Store):
    """A store that stops where it is told, in the third save."""

    stage = "none"
    num_saves = 0

    def _meet(self, stage: str) -> None:
        if self.stage == stage and self.num_saves == 3:
            stop(stage)

    def put_many(self, objects: Any, *, durable: bool = False) -> None:
        first, *others = objects.items()
        super().put_many(dict([first]), durable=durable)
        self._meet("data")
        super().put_many(dict(others), durable=durable)

    def create(self, key: str, data: bytes, *, durable: bool = False) -> bool:
        self._meet("manifest")
        return super().create(key, data, durable=durable)

    def clear(self, prefix: str) -> None:
        self._meet("retention")  # the manifest is gone, its data is not
        super().clear(prefix)


def stop_within(module: Any, name: str, stage: str, store: Stopping) -> None:
    """Let a function stop before it does its work."""
    function: Callable[..., Any] = getattr(module, name)

    def stopping(*args: Any) -> Any:
        store._meet(stage)
        return function(*args)

    setattr(module, name, stopping)


def write(url: str, step: int, stage: str) -> None:
    """Save each step from `step` on, keeping two."""
    store = Stopping(url)
    store.stage = stage
    stop_within(snapshot_module, "_dump", "snapshot", store)
    stop_within(os, "fsync", "fsync", store)  # a local file is written and has no name yet
    committer, shelf, buffer = Committer(store, RUN), Shelf(store, RUN), HostBuffer()
    while True:
        store.num_saves += 1
        name, snapshot = CheckpointName.new(step, 1, time.time()), snapshot_at(step, buffer)
        shard = committer.write_shard(name, 0, snapshot.skeleton, snapshot.view())
        committer.commit(name, manifest_of(name, shard))
        say(f"durable {step}")
        shelf.prune(2)
        step += 1


def main(url: str) -> None:
    """Fork a writer a command, one at a time."""
    commit_module.PART_BYTES = commit_module._MIN_REMOTE_PART_BYTES = 100_000  # several parts
    Store(url).load()
    snapshot_at(0)
    say("ready")
    for line in sys.stdin:
        step, stage = line.split()
        if (pid := os.fork()) == 0:
            write(url, int(step), stage)
        say(f"pid {pid}")
        os.waitpid(pid, 0)
        say("ended")


if __name__ == "__main__":
    main(sys.argv[1])
