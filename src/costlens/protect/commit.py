"""The commit protocol: data first under names of its own, checked, and the manifest last.

Runs on the writer's thread. A kill at any point leaves at most objects that no manifest names; a
reader never sees half a checkpoint, whatever the store, for no rename and no overwriting is needed.
"""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from costlens.errors import CheckpointError, StorageError
from costlens.protect.manifest import CheckpointName, DataObject, Manifest, Shard, digest
from costlens.storage.names import safe_name
from costlens.storage.store import Store

__all__ = ["PART_BYTES", "Committer", "folder_of", "manifest_key", "shard_key"]

PART_BYTES = 128 * 2**20
"""Most bytes of one object in a local folder."""

REMOTE_PART_BYTES = 48 * 2**20
"""Most bytes of one object elsewhere: one request of S3, GCS and Azure. Larger ones are uploaded in
several, and a kill between them leaves what no listing shows and everybody pays for."""

_MIN_REMOTE_PART_BYTES = 8 * 2**20
_NUM_REMOTE_PARTS = 128

_TRIES = 3
_PAUSE_S = 1.0
# Trying again would meet the same answer.
_HOPELESS = frozenset(
    (
        *(errno.EACCES, errno.EDQUOT, errno.EINVAL, errno.ENAMETOOLONG, errno.ENOSPC),
        *(errno.ENOTDIR, errno.ENOTSUP, errno.EPERM, errno.EROFS),
    )
)


def folder_of(run_id: str, name: CheckpointName | None = None) -> str:
    """Return the folder of a run's data, or of one checkpoint's."""
    root = f"{safe_name(run_id)}/data"
    return root if name is None else f"{root}/{name}"


def manifest_key(run_id: str, name: CheckpointName | None = None) -> str:
    """Return the key of a manifest, or of the folder of a run's manifests."""
    root = f"{safe_name(run_id)}/manifests"
    return root if name is None else f"{root}/{name}.json"


def shard_key(run_id: str, name: CheckpointName, rank: int) -> str:
    """Return the key under which a rank tells what it saved."""
    return f"{folder_of(run_id, name)}/r{rank:05d}-shard.json"


@dataclass(slots=True)
class Committer:
    """Writes the checkpoints of one run to one store.

    Args:
        store: Where they go.
        run_id: Whose they are; two runs in one place never mix.
        sleep: Waits between two tries.

    Attributes:
        num_retries: Writes that were tried again.
    """

    store: Store
    run_id: str
    sleep: Callable[[float], None] = time.sleep
    num_retries: int = field(default=0, init=False)

    def check(self) -> None:
        """Prove that the store takes objects and refuses to create one twice; before step 1.

        Raises:
            StorageError: If it does not; names the place and why.
        """
        key = f"{safe_name(self.run_id)}/probe-{CheckpointName.new(0, 1, time.time())}"
        if not self.store.create(key, b"costlens"):
            raise StorageError(f"{self.store.shown_url} has an object that nobody made")
        self.store.delete(key)

    def write_shard(
        self,
        name: CheckpointName,
        rank: int,
        skeleton: bytes,
        view: memoryview,
        runs: list[tuple[int, int]] | None = None,
    ) -> Shard:
        """Write what one rank saves and return its description, once every size is as written.

        What was written of a save that fails is removed again.

        Args:
            name: The checkpoint.
            rank: The rank.
            skeleton: The tree around the tensors.
            view: The bytes of the tensors; not changed by anybody meanwhile.
            runs: Offset and length of what differs from rank 0; None writes everything.

        Raises:
            StorageError: If the store refused, after retries where they could help.
            CheckpointError: If the store kept something else than what was written.
        """
        own = view if runs is None else memoryview(b"".join(view[o : o + n] for o, n in runs))
        width, stem = self.store.num_parallel, f"{folder_of(self.run_id, name)}/r{rank:05d}"
        parts = [
            (f"{stem}-skeleton", memoryview(skeleton)),
            *((f"{stem}-{number:05d}", data) for number, data in _cut(own, width)),
        ]
        written: list[DataObject] = []
        try:
            for start in range(0, len(parts), width):
                batch = dict(parts[start : start + width])
                written += (
                    DataObject(key=key, num_bytes=len(data), xxh3=digest(data))
                    for key, data in batch.items()
                )
                self._put(batch)
            self._check_sizes(name, written)
        except (StorageError, CheckpointError):
            self._remove(written)
            raise
        return Shard(
            rank=rank,
            skeleton=written[0],
            data=written[1:],
            num_bytes=len(view),
            base=None if runs is None else 0,
            runs=runs or [],
        )

    def announce(self, name: CheckpointName, shard: Shard) -> None:
        """Tell whoever commits the checkpoint what this rank has written.

        Raises:
            StorageError: If that could not be written.
        """
        data = shard.model_dump_json().encode()
        self._put({shard_key(self.run_id, name, shard.rank): memoryview(data)})

    def discard(self, name: CheckpointName, shard: Shard) -> None:
        """Remove what a rank wrote for a checkpoint that nobody will commit."""
        self._remove([shard.skeleton, *shard.data])
        with contextlib.suppress(StorageError):
            self.store.delete(shard_key(self.run_id, name, shard.rank))

    def commit(self, name: CheckpointName, manifest: Manifest) -> str:
        """Make the checkpoint exist and return the key of its manifest.

        Raises:
            StorageError: If the manifest could not be written.
            CheckpointError: If it is there already, or the store did not keep it.
        """
        key, data = manifest_key(self.run_id, name), manifest.model_dump_json().encode()
        if not self._try(lambda: self.store.create(key, data, durable=True)):
            # A try whose answer was lost may have worked.
            if self.store.read(key) != data:
                raise CheckpointError(f"another writer has made {key!r}")
        elif self.store.read(key) != data:
            raise CheckpointError(f"the store did not keep {key!r}")
        return key

    def _put(self, batch: dict[str, memoryview]) -> None:
        # Names of its own: what a failed try has written is written again, the same bytes.
        self._try(lambda: self.store.put_many(batch, durable=True))

    def _try(self, write: Callable[[], object]) -> object:
        for number in range(1, _TRIES + 1):
            try:
                return write()
            except StorageError as error:
                if number == _TRIES or error.errno in _HOPELESS:
                    raise
                self.num_retries += 1
                self.sleep(_PAUSE_S * 2 ** (number - 1))
        raise AssertionError  # the last try returns or raises

    def _check_sizes(self, name: CheckpointName, written: list[DataObject]) -> None:
        folder = folder_of(self.run_id, name)
        found = self.store.sizes(folder)
        for each in written:
            size = found.get(each.key.rpartition("/")[2])
            if size != each.num_bytes:
                kept = "nothing" if size is None else f"{size} bytes"
                raise CheckpointError(
                    f"{self.store.shown_url} took {each.num_bytes} bytes of {each.key!r} and has"
                    f" {kept} of it"
                )

    def _remove(self, written: list[DataObject]) -> None:
        for each in written:
            # The failure that led here is the one to tell; what stays is swept later.
            with contextlib.suppress(StorageError):
                self.store.delete(each.key)


def _cut(view: memoryview, width: int) -> Iterator[tuple[int, memoryview]]:
    """Yield the parts with their numbers; those in flight at once are 7 % of a large state."""
    size = PART_BYTES
    if width > 1:
        size = max(_MIN_REMOTE_PART_BYTES, len(view) // _NUM_REMOTE_PARTS)
        size = min(size, REMOTE_PART_BYTES)
    for number, start in enumerate(range(0, len(view), size)):
        yield number, view[start : start + size]
