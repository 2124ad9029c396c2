"""The checkpoints of a run as a reader finds them: which are there, which are whole, which to use.

The truth is the set of manifests, looked up afresh each time; newest first, the first one whose
bytes have the digests it names wins. Blocks on the store: start-up, the writer's thread, the CLI.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from costlens.errors import CheckpointError, StorageError
from costlens.protect.commit import folder_of, manifest_key
from costlens.protect.manifest import CheckpointName, DataObject, Manifest, digest
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
    """

    found: Found
    skeleton: bytes
    buffer: torch.Tensor


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

    def unmarked(self) -> list[CheckpointName]:
        """Return the checkpoints that no start has found unusable, newest first.

        Raises:
            StorageError: If the store cannot be listed.
        """
        marked = self.marked()
        return [name for name in self.names() if str(name) not in marked]

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
        import torch  # listing and verifying need none of it

        shard = found.manifest.find_shard(rank)
        self._check_sizes(found.name, [shard.skeleton, *shard.data])
        skeleton = bytearray(shard.skeleton.num_bytes)
        self._read([shard.skeleton], memoryview(skeleton))
        if sum(part.num_bytes for part in shard.data) != shard.num_bytes:
            raise CheckpointError("its parts do not add up to its size")
        buffer = torch.empty(shard.num_bytes, dtype=torch.uint8)
        view, start = buffer.numpy().data, 0
        for parts in self._batches(shard.data):
            start += self._read(parts, view[start:])
        return Loaded(found, bytes(skeleton), buffer)

    def load_newest(
        self, rank: int = 0, *, names: list[CheckpointName] | None = None
    ) -> Loaded | None:
        """Return the newest checkpoint that verifies, or None; notes the others as rejections.

        One whose bytes are wrong is marked, so that no later start tries it again.

        Args:
            rank: Whose shard is loaded.
            names: What to try, in order; all of them, newest first, by default.

        Raises:
            StorageError: If the store cannot be listed.
        """
        self.rejections.clear()
        marked = self.marked()
        for name in self.names() if names is None else names:
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
                if self._is_safe(loaded):
                    return loaded
        return None

    def _is_safe(self, loaded: Loaded) -> bool:
        """Return whether it loads by ``weights_only``: digests tell that it is what was committed.

        It is passed over otherwise, unmarked, for a newer torch may know the types in it.
        """
        from costlens.protect.snapshot import load_tree

        try:
            load_tree(loaded.skeleton, loaded.buffer)
        except CheckpointError as error:
            self.rejections.append(Rejection(loaded.found.name, str(error), is_final=False))
            return False
        return True

    def check(self, name: CheckpointName) -> Found:
        """Return the checkpoint once every object has the size it should; reads none of them.

        Raises:
            StorageError: If its manifest cannot be read.
            CheckpointError: If it is not whole; says why.
        """
        found = self.read(name)
        self._check_sizes(name, found.manifest.objects)
        return found

    def verify(self, name: CheckpointName) -> Found:
        """Return the checkpoint once every byte of every rank was read and compared.

        Raises:
            StorageError: If an object cannot be read.
            CheckpointError: If it is not whole; says why.
        """
        found = self.check(name)
        for parts in self._batches(found.manifest.objects):
            self._read(parts, memoryview(bytearray(sum(part.num_bytes for part in parts))))
        return found

    def reject(self, name: CheckpointName, reason: str) -> None:
        """Mark a checkpoint as not usable; nothing of it is removed, for a person may want it."""
        mark = json.dumps({"reason": reason}).encode()
        try:
            self.store.create(f"{self._rejected_folder()}/{name}.json", mark)
        except StorageError:
            return  # a store that can only be read; it will be tried again

    def prune(self, keep: int, protected: frozenset[CheckpointName] = frozenset()) -> int:
        """Return how many checkpoints were removed: all but the newest ``keep``, manifest first.

        Never fewer than two stay, nor do any that are protected.

        Args:
            keep: How many to keep, >= 1; negative keeps all.
            protected: The one that the run resumed from, and the last one known to be good.

        Raises:
            StorageError: If the store cannot be listed, or refuses to delete.
        """
        if keep < 0:
            return 0
        good = self.unmarked()
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

    def _check_sizes(self, name: CheckpointName, parts: list[DataObject]) -> None:
        """Compare sizes before any memory is taken: anybody may have written the manifest."""
        folder = folder_of(self.run_id, name)
        sizes = self.store.sizes(folder)
        for part in parts:
            parent, _, short = part.key.rpartition("/")
            if parent != folder:
                raise CheckpointError(f"it names {part.key!r}, which is not its own")
            if short not in sizes:
                raise CheckpointError(f"{short} is missing")
            if sizes[short] != part.num_bytes:
                raise CheckpointError(f"{short} has {sizes[short]} bytes, not {part.num_bytes}")

    def _batches(self, parts: list[DataObject]) -> Iterator[list[DataObject]]:
        width = self.store.num_parallel
        for start in range(0, len(parts), width):
            yield parts[start : start + width]

    def _read(self, parts: list[DataObject], view: memoryview) -> int:
        """Fill the start of ``view`` with some objects, verified; return their bytes."""
        targets, start = {}, 0
        for part in parts:
            targets[part.key] = view[start : start + part.num_bytes]
            start += part.num_bytes
        found = self.store.read_many_into(targets)
        for part in parts:
            short = part.key.rpartition("/")[2]
            if (num_bytes := found.get(part.key)) is None:
                raise CheckpointError(f"{short} is missing")
            if num_bytes != part.num_bytes:
                raise CheckpointError(f"{short} has {num_bytes} bytes, not {part.num_bytes}")
            if digest(targets[part.key]) != part.xxh3:
                raise CheckpointError(f"{short} is not what was written: its digest differs")
        return start

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
                yield name, str(json.loads(data)["reason"])
            except (ValueError, KeyError, TypeError):
                yield name, "it is not usable"
