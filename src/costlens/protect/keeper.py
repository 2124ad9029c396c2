"""Where the checkpoints of a run are kept: published, pruned, and loaded again.

One rank keeps them here; several do in ``group_keeper.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from costlens.errors import CheckpointError
from costlens.protect.commit import Committer
from costlens.protect.manifest import CheckpointName, Kind, Manifest, Shard
from costlens.protect.shelf import Loaded, Shelf
from costlens.protect.snapshot import Snapshot

__all__ = ["Keeper", "check_world"]


@dataclass
class Keeper:
    """Where the checkpoints of a run are kept, for its writer and its resume.

    Args:
        committer: Writes them.
        shelf: Reads them.
        keep: How many stay, >= 1; negative keeps all.
        describe: Returns the facts of a manifest that the store does not know: run, attempt,
            version, counts.
        resumed: The checkpoint that this attempt resumed from; it stays.
    """

    committer: Committer
    shelf: Shelf
    keep: int
    describe: Callable[[], dict[str, Any]]
    resumed: CheckpointName | None = None

    def publish(self, name: CheckpointName, kind: Kind, snapshot: Snapshot, time_s: float) -> int:
        """Write, commit and prune; return the retries. The writer's thread.

        Raises:
            StorageError: If the store refused.
            CheckpointError: If it kept something else than what was written.
        """
        before = self.committer.num_retries
        shard = self.committer.write_shard(name, 0, snapshot.skeleton, snapshot.view())
        self.committer.commit(name, self._manifest(name, kind, time_s, [shard]))
        self._prune()
        return self.committer.num_retries - before

    def load(self) -> Loaded | None:
        """Return the newest checkpoint that verifies, or None; start-up, reads the whole state.

        Raises:
            StorageError: If the store cannot be listed.
            CheckpointError: If it was saved by another number of ranks.
        """
        loaded = self.shelf.load_newest(0)
        if loaded is not None:
            check_world(loaded.found.manifest, 1)
        return loaded

    def restore(self, put_back: Callable[[], list[str]]) -> list[str]:
        """Return what putting a state back returns, on all ranks or on none.

        Raises:
            CheckpointError: If the state does not fit what is to be restored.
        """
        return put_back()

    def _manifest(
        self, name: CheckpointName, kind: Kind, time_s: float, shards: list[Shard]
    ) -> Manifest:
        return Manifest(
            step=name.step,
            attempt=name.attempt,
            kind=kind,
            created_time=time_s,
            world_size=len(shards),
            shards=shards,
            torch_version=torch.__version__,
            **self.describe(),
        )

    def _prune(self) -> None:
        protected = frozenset() if self.resumed is None else frozenset({self.resumed})
        self.shelf.prune(self.keep, protected)


def check_world(manifest: Manifest, world_size: int) -> None:
    """Raise where a checkpoint belongs to a job of another size.

    Raises:
        CheckpointError: If it was saved by another number of ranks than there are now.
    """
    if manifest.world_size != world_size:
        raise CheckpointError(
            f"the checkpoint at step {manifest.step} was saved by {manifest.world_size} ranks and"
            f" this job has {world_size}: each rank goes on from its own part. Start"
            f" {manifest.world_size} ranks, or set COSTLENS_RESUME=never to start afresh; to change"
            " the number of ranks, save with torch.distributed.checkpoint"
        )
