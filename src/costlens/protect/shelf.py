"""The checkpoints of a run as a reader finds them: which are there, which are whole, which to use.

The truth is the set of manifests, looked up afresh each time; newest first, the first one whose
bytes have the digests it names wins. Blocks on the store: start-up, the writer's thread, the CLI.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from costlens.errors import CheckpointError, StorageError
from costlens.protect.commit import folder_of, manifest_key
from costlens.protect.manifest import CheckpointName, Manifest, MisfitError
from costlens.protect.shard_reader import check_sizes, read_buffer, read_objects, read_skeleton
from costlens.storage.json_object import decode_object
from costlens.storage.names import safe_name
from costlens.storage.store import Store

if TYPE_CHECKING:
    import torch

__all__ = ["ORPHAN_AGE_S", "Found", "Loaded", "Rejection", "Shelf"]

# A manifest of 100,000 ranks; anything larger is none.
_MAX_MANIFEST_BYTES = 256 * 2**20
ORPHAN_AGE_S = 24 * 3600.0
"""Seconds after which a save without a manifest is nobody's any more."""

_MIN_KEPT = 2


@dataclass(frozen=True, slots=True)
class Found:
    """A checkpoint whose manifest could be read."""

    name: CheckpointName
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Rejection:
    """A checkpoint that was passed over.

    Args:
        name: Its name.
        reason: Why, a sentence without a full stop.
        is_final: Whether its bytes are wrong, rather than out of reach at the moment.
    """

    name: CheckpointName
    reason: str
    is_final: bool


@dataclass(frozen=True, slots=True)
class Loaded:
    """What one rank gets back, verified.

    Args:
        found: The checkpoint.
        skeleton: The tree around the tensors.
        buffer: The bytes of the tensors.
        tree: The state, around views of the buffer; None before it was asked for.
    """

    found: Found
    skeleton: bytes
    buffer: torch.Tensor
    tree: Any = None


@dataclass(slots=True)
class Shelf:
    """The checkpoints of one run in one store.

    Args:
        store: Where they are.
        run_id: Whose they are.

    Attributes:
        rejections: What the last look for a checkpoint passed over, newest first.
    """

    store: Store
    run_id: str
    rejections: list[Rejection] = field(default_factory=list, init=False)

    def names(self) -> list[CheckpointName]:
        """Return the checkpoints that have a manifest, newest first; one request to the store.

        Raises:
            StorageError: If the store cannot be listed.
        """
        keys = self.store.children(manifest_key(self.run_id))
        names = (CheckpointName.parse(key.removesuffix(".json")) for key in keys)
        return sorted((name for name in names if name is not None), reverse=True)

    def current(self) -> list[CheckpointName]:
        """Return what a resume may take, newest first: unmarked, and of the training begun last.

        Reads one manifest.

        Raises:
            StorageError: If the store cannot be listed.
        """
        names, marked = self._names_of_newest(), self.marked()
        return [name for name in names if str(name) not in marked]

    def _names_of_newest(self) -> list[CheckpointName]:
        names = self.names()
        since = self.find_lineage(names)
        return [name for name in names if name.stamp >= since]

    def find_lineage(self, names: list[CheckpointName]) -> str:
        """Return the stamp since which names belong to the training that was begun last.

        A fresh start beside older checkpoints begins another training: they stay where they are,
        and are neither its past nor in its way. "" where nothing was begun anew.

        Args:
            names: All that have a manifest.
        """
        for name in sorted(names, key=lambda each: (each.stamp, each), reverse=True):
            try:
                lineage = self.read(name).manifest.lineage
            except (CheckpointError, StorageError):
                continue
            return lineage if lineage <= name.stamp else ""
        return ""

    def read(self, name: CheckpointName) -> Found:
        """Return a checkpoint's manifest.

        Raises:
            StorageError: If it cannot be read.
            CheckpointError: If it is none, or another checkpoint's.
        """
        data = self.store.read(manifest_key(self.run_id, name), _MAX_MANIFEST_BYTES)
        if data is None:
            raise CheckpointError("its manifest is gone")
        manifest = Manifest.parse(data)
        if (manifest.run_id, manifest.step, manifest.attempt) != (
            self.run_id,
            name.step,
            name.attempt,
        ):
            raise CheckpointError("its manifest is that of another checkpoint")
        return Found(name, manifest)

    def load(self, found: Found, rank: int) -> Loaded:
        """Return what a rank saved, every byte of it verified.

        Needs the memory of the state once; local files are read without another copy.

        Raises:
            StorageError: If an object cannot be read.
            CheckpointError: If an object is missing, or its size or digest is not the manifest's.
        """
        shard, folder = found.manifest.find_shard(rank), folder_of(self.run_id, found.name)
        skeleton = read_skeleton(self.store, folder, shard)
        return Loaded(found, skeleton, read_buffer(self.store, folder, found.manifest, shard))

    def load_newest(
        self,
        rank: int = 0,
        *,
        names: list[CheckpointName] | None = None,
        open_loaded: Callable[[Loaded], Any] | None = None,
    ) -> Loaded | None:
        """Return the newest checkpoint that verifies, or None; notes the others as rejections.

        One whose bytes are wrong is marked, so that no later start tries it again.

        Args:
            rank: Whose shard is loaded.
            names: What to try, in order; by default those of the training begun last, newest first.
            open_loaded: Returns the state that was loaded; by default as it was saved. A checkpoint
                of which it says that it cannot be used is passed over, and not marked.

        Raises:
            StorageError: If the store cannot be listed.
            MisfitError: If it is whole and does not fit this job.
        """
        self.rejections.clear()
        marked = self.marked()
        if names is None:
            names = self._names_of_newest()
        for name in names:
            if (reason := marked.get(str(name))) is not None:
                reason = f"an earlier start found that {reason}"
                self.rejections.append(Rejection(name, reason, is_final=True))
                continue
            try:
                found = self.read(name)
                if rank >= found.manifest.world_size:
                    reason = f"it was saved by {found.manifest.world_size} ranks"
                    self.rejections.append(Rejection(name, reason, is_final=False))
                    continue
                loaded = self.load(found, rank)
            except CheckpointError as error:
                self.rejections.append(Rejection(name, str(error), is_final=True))
                self.reject(name, str(error))
            except StorageError as error:
                self.rejections.append(Rejection(name, str(error), is_final=False))
            else:
                opened = self._open(loaded, open_loaded or _open_plainly)
                if opened is not None:
                    return opened
        return None

    def _open(self, loaded: Loaded, open_loaded: Callable[[Loaded], Any]) -> Loaded | None:
        """Return it with its state: digests tell only that it is what was committed.

        A newer torch may know the types in it that this one refuses.
        """
        try:
            return replace(loaded, tree=open_loaded(loaded))
        except MisfitError:
            raise
        except (CheckpointError, StorageError) as error:
            self.rejections.append(Rejection(loaded.found.name, str(error), is_final=False))
            return None

    def check(self, name: CheckpointName) -> Found:
        """Return the checkpoint once every object has the size it should; reads none of them.

        Raises:
            StorageError: If its manifest cannot be read.
            CheckpointError: If it is not whole; says why.
        """
        found = self.read(name)
        check_sizes(self.store, folder_of(self.run_id, name), found.manifest.objects)
        return found

    def verify(self, name: CheckpointName) -> Found:
        """Return the checkpoint once every byte of every rank was read and compared.

        Raises:
            StorageError: If an object cannot be read.
            CheckpointError: If it is not whole; says why.
        """
        found = self.check(name)
        read_objects(self.store, found.manifest.objects)
        return found

    def reject(self, name: CheckpointName, reason: str) -> None:
        """Mark a checkpoint as not usable; nothing of it is removed, for a person may want it."""
        mark = json.dumps({"reason": reason}).encode()
        try:
            self.store.create(f"{self._rejected_folder()}/{name}.json", mark)
        except StorageError:
            return  # a store that can only be read; it will be tried again

    def prune(
        self, keep: int, protected: frozenset[CheckpointName] = frozenset(), since: str = ""
    ) -> int:
        """Return how many checkpoints were removed: all but the newest ``keep``, manifest first.

        Never fewer than two stay, nor do any that are protected.

        Args:
            keep: How many to keep, >= 1; negative keeps all.
            protected: The one that the run resumed from, and the last one known to be good.
            since: The lineage that is pruned: names of an earlier stamp are another training.

        Raises:
            StorageError: If the store cannot be listed, or refuses to delete.
        """
        if keep < 0:
            return 0
        marked = self.marked()
        good = [n for n in self.names() if n.stamp >= since and str(n) not in marked]
        old = [name for name in good[max(keep, _MIN_KEPT) :] if name not in protected]
        for name in old:
            self.remove(name)
        return len(old)

    def remove(self, name: CheckpointName) -> None:
        """Remove a checkpoint: the manifest first, so that no reader meets half of it."""
        self.store.delete(manifest_key(self.run_id, name))
        self.store.clear(folder_of(self.run_id, name))

    def unfinished(self) -> list[CheckpointName]:
        """Return the saves that have data and no manifest: being written, or left by a kill.

        Raises:
            StorageError: If the store cannot be listed.
        """
        # The data first: what is committed between the two looks is not taken for a rest.
        children = self.store.children(folder_of(self.run_id))
        begun = [CheckpointName.parse(child.rstrip("/")) for child in children]
        known = {*self.names()}
        return [name for name in begun if name is not None and name not in known]

    def sweep(self, now_s: float, older_than_s: float = ORPHAN_AGE_S) -> int:
        """Return how many unfinished saves were removed because of their age.

        Args:
            now_s: Unix time.
            older_than_s: Age from which on nobody is writing them any more, by their name's time.

        Raises:
            StorageError: If the store cannot be listed, or refuses to delete.
        """
        old = [name for name in self.unfinished() if now_s - name.wall_s >= older_than_s]
        for name in old:
            self.remove(name)
        return len(old)

    def _rejected_folder(self) -> str:
        return f"{safe_name(self.run_id)}/rejected"

    def marked(self) -> dict[str, str]:
        """Return why, by name, checkpoints are marked as not usable.

        Raises:
            StorageError: If the store cannot be listed.
        """
        return dict(self._read_marks())

    def _read_marks(self) -> Iterator[tuple[str, str]]:
        folder = self._rejected_folder()
        keys = [f"{folder}/{key}" for key in self.store.children(folder)]
        for key, data in self.store.read_many(keys).items():
            name = key.rpartition("/")[2].removesuffix(".json")
            if isinstance(data, StorageError):
                continue
            try:
                yield name, str(decode_object(data)["reason"])
            except (ValueError, KeyError, TypeError):
                yield name, "it is not usable"


def _open_plainly(loaded: Loaded) -> Any:  # noqa: ANN401 - any tree
    from costlens.protect.snapshot import load_tree

    return load_tree(loaded.skeleton, loaded.buffer)
