"""Reads what the ranks saved of a checkpoint, every byte compared with its manifest.

The other side of ``commit.py``; ``shelf.py`` chooses what is read. Blocks on the store.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from costlens.errors import CheckpointError
from costlens.protect.manifest import DataObject, Manifest, Shard, digest
from costlens.storage.store import Store

if TYPE_CHECKING:
    import torch

__all__ = ["check_sizes", "read_buffer", "read_objects", "read_skeleton"]


def check_sizes(store: Store, folder: str, parts: list[DataObject]) -> None:
    """Compare sizes before any memory is taken: anybody may have written the manifest.

    Args:
        store: Where they are.
        folder: The only one that the checkpoint may name.
        parts: Objects that its manifest names.

    Raises:
        StorageError: If the store cannot be listed.
        CheckpointError: If one is missing, or is not what the manifest says.
    """
    if len({part.key for part in parts}) < len(parts):
        raise CheckpointError("it names an object twice")
    sizes = store.sizes(folder)
    for part in parts:
        parent, _, short = part.key.rpartition("/")
        if parent != folder:
            raise CheckpointError(f"it names {part.key!r}, which is not its own")
        if short not in sizes:
            raise CheckpointError(f"{short} is missing")
        if sizes[short] != part.num_bytes:
            raise CheckpointError(f"{short} has {sizes[short]} bytes, not {part.num_bytes}")


def read_skeleton(store: Store, folder: str, shard: Shard) -> bytes:
    """Return the tree around the tensors of a rank, verified.

    Raises:
        StorageError: If it cannot be read.
        CheckpointError: If it is not what was written.
    """
    check_sizes(store, folder, [shard.skeleton])
    skeleton = bytearray(shard.skeleton.num_bytes)
    _fill(store, [shard.skeleton], memoryview(skeleton))
    return bytes(skeleton)


def read_buffer(store: Store, folder: str, manifest: Manifest, shard: Shard) -> torch.Tensor:
    """Return the bytes of the tensors of a rank, verified; needs their memory once.

    Raises:
        StorageError: If an object cannot be read.
        CheckpointError: If an object is missing, or its size or digest is not the manifest's.
    """
    import torch  # listing and verifying need none of it

    base = _find_base(manifest, shard)
    shared = [] if base is None else base.data
    check_sizes(store, folder, [*shard.data, *shared])
    buffer = torch.empty(shard.num_bytes, dtype=torch.uint8)
    view = buffer.numpy().data
    if base is None:
        _fill(store, shard.data, view)
        return buffer
    _fill(store, shared, view)
    own, start = memoryview(bytearray(shard.own_bytes)), 0
    _fill(store, shard.data, own)
    for offset, length in shard.runs:
        view[offset : offset + length] = own[start : start + length]
        start += length
    return buffer


def read_objects(store: Store, parts: list[DataObject]) -> None:
    """Read objects and keep nothing of them, for whoever wants to know whether they are whole.

    Raises:
        StorageError: If an object cannot be read.
        CheckpointError: If one is missing, or is not what was written.
    """
    for batch in _batches(store, parts):
        _read(store, batch, memoryview(bytearray(sum(part.num_bytes for part in batch))))


def _find_base(manifest: Manifest, shard: Shard) -> Shard | None:
    """Return the shard that another one is like but for its own bytes."""
    base = None if shard.base is None else manifest.find_shard(shard.base)
    for each in (shard, base):
        if each is not None and sum(part.num_bytes for part in each.data) != each.own_bytes:
            raise CheckpointError("its parts do not add up to its size")
    is_odd = base is not None and (base.base is not None or base.num_bytes != shard.num_bytes)
    if is_odd or any(
        offset < 0 or length < 0 or offset + length > shard.num_bytes
        for offset, length in shard.runs
    ):
        raise CheckpointError("its shards do not fit together")
    return base


def _batches(store: Store, parts: list[DataObject]) -> Iterator[list[DataObject]]:
    width = store.num_parallel
    for start in range(0, len(parts), width):
        yield parts[start : start + width]


def _fill(store: Store, parts: list[DataObject], view: memoryview) -> None:
    start = 0
    for batch in _batches(store, parts):
        start += _read(store, batch, view[start:])


def _read(store: Store, parts: list[DataObject], view: memoryview) -> int:
    """Fill the start of ``view`` with some objects, verified; return their bytes."""
    targets, start = {}, 0
    for part in parts:
        targets[part.key] = view[start : start + part.num_bytes]
        start += part.num_bytes
    found = store.read_many_into(targets)
    for part in parts:
        short = part.key.rpartition("/")[2]
        if (num_bytes := found.get(part.key)) is None:
            raise CheckpointError(f"{short} is missing")
        if num_bytes != part.num_bytes:
            raise CheckpointError(f"{short} has {num_bytes} bytes, not {part.num_bytes}")
        if digest(targets[part.key]) != part.xxh3:
            raise CheckpointError(f"{short} is not what was written: its digest differs")
    return start
