"""Where the checkpoints of a run are kept: published, pruned, and loaded again.

One rank keeps them here; several do in ``group_keeper.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from costlens.errors import StorageError
from costlens.protect.commit import Committer
from costlens.protect.manifest import CheckpointName, Kind, Manifest, Shard, next_stamp
from costlens.protect.regroup import open_tree
from costlens.protect.shelf import Found, Loaded, Shelf
from costlens.protect.snapshot import Snapshot
from costlens.protect.state_port import StatePort
from costlens.protect.writer import Published

__all__ = ["Keeper", "Resumable"]

_MAX_INEXACT = 32


@dataclass(frozen=True, slots=True)
class Resumable:
    """A checkpoint that this rank can go on from.

    Args:
        found: The checkpoint.
        tree: The state.
        inexact: What of it cannot be exact, a sentence each.
    """

    found: Found
    tree: Any
    inexact: list[str]


@dataclass
class Keeper:
    """Where the checkpoints of a run are kept, for its writer and its resume.

    Args:
        committer: Writes them.
        shelf: Reads them.
        keep: How many stay, >= 1; negative keeps all.
        describe: Returns the facts of a manifest that the store does not know: run, version,
            counts, precision.

    Attributes:
        resumed: The checkpoint that this attempt resumed from; it stays.
        lineage: Since when, as a stamp, names belong to this training; None until that is known.
    """

    committer: Committer
    shelf: Shelf
    keep: int
    describe: Callable[[], dict[str, Any]]
    resumed: CheckpointName | None = field(default=None, init=False)
    lineage: str | None = field(default=None, init=False)

    def publish(
        self,
        name: CheckpointName,
        kind: Kind,
        snapshot: Snapshot,
        time_s: float,
        inexact: Sequence[str] = (),
    ) -> Published:
        """Write, commit and prune; the writer's thread.

        Args:
            name: The checkpoint.
            kind: What asked for it.
            snapshot: The state.
            time_s: Unix time of the snapshot.
            inexact: What a resume from it cannot restore exactly, a sentence each.

        Raises:
            StorageError: If the store refused.
            CheckpointError: If it kept something else than what was written.
        """
        before = self.committer.num_retries
        shard = self.committer.write_shard(name, 0, snapshot.skeleton, snapshot.view())
        self.committer.commit(name, self._manifest(name, kind, time_s, [shard], inexact))
        left = self._prune()
        return Published(shard.stored_bytes, self.committer.num_retries - before, left)

    def load(self, source: StatePort) -> Resumable | None:
        """Return the newest checkpoint that verifies, or None; start-up, reads the whole state.

        Args:
            source: What is to be restored.

        Raises:
            StorageError: If the store cannot be listed.
            MisfitError: If other ranks have saved it, and one alone cannot take it.
        """
        inexact: list[str] = []

        def open_loaded(loaded: Loaded) -> Any:  # noqa: ANN401 - any tree
            tree, inexact[:] = open_tree(self.shelf, loaded, 0, 1, source)
            return tree

        loaded = self.shelf.load_newest(0, open_loaded=open_loaded)
        return None if loaded is None else Resumable(loaded.found, loaded.tree, inexact)

    def restore(self, put_back: Callable[[], list[str]]) -> list[str]:
        """Return what putting a state back returns, on all ranks or on none.

        Raises:
            CheckpointError: If the state does not fit what is to be restored.
        """
        return put_back()

    def go_on_from(self, found: Found) -> None:
        """Note that this attempt goes on from a checkpoint: the training is the same."""
        self.resumed, self.lineage = found.name, found.manifest.lineage

    def begin_anew(self) -> None:
        """Note that this attempt begins a training: older checkpoints are another one's.

        Start-up; lists the store.

        Raises:
            StorageError: If the store cannot be listed.
        """
        self.resumed, self.lineage = None, self._next_lineage()

    def no_earlier(self, name: CheckpointName) -> CheckpointName:
        """Return a name that sorts behind the past of the training, whatever this clock says."""
        floors = (self.lineage or "", "" if self.resumed is None else self.resumed.stamp)
        return name.no_earlier(max(floors))

    def _next_lineage(self) -> str:
        newest = max((name.stamp for name in self.shelf.names()), default="")
        now = CheckpointName.stamp_of(time.time())
        return now if now > newest else next_stamp(newest)

    def _manifest(
        self,
        name: CheckpointName,
        kind: Kind,
        time_s: float,
        shards: list[Shard],
        inexact: Sequence[str],
    ) -> Manifest:
        if self.lineage is None:  # nobody has asked for a resume
            self.lineage = name.stamp
        return Manifest(
            step=name.step,
            attempt=name.attempt,
            kind=kind,
            created_time=time_s,
            world_size=len(shards),
            shards=shards,
            parent=None if self.resumed is None else str(self.resumed),
            lineage=self.lineage,
            inexact=[*inexact][:_MAX_INEXACT],
            torch_version=torch.__version__,
            **self.describe(),
        )

    def _prune(self) -> str | None:
        """Return why older checkpoints are still there, None where that was not so.

        A save that exists is no failure because another one could not be removed.
        """
        protected = frozenset() if self.resumed is None else frozenset({self.resumed})
        try:
            self.shelf.prune(self.keep, protected, self.lineage or "")
        except StorageError as error:
            return str(error)
        return None
