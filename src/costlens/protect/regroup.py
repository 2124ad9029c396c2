"""A checkpoint of another number of ranks: what each rank that is here now takes of it.

What all ranks hold alike, and what is a rank's own (random numbers, place in the data), comes from
one shard. Tensors that were spread over the ranks are put together from the pieces of all shards,
each straight into the part that this rank holds now: at no time is more than one other shard in
memory. Start-up; reads the descriptions of all shards, and the data of those that have a piece of
what is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from costlens.errors import CheckpointError
from costlens.protect.commit import folder_of
from costlens.protect.manifest import Manifest, MisfitError
from costlens.protect.shard_reader import read_buffer, read_skeleton
from costlens.protect.sharded import is_sharded, locate, wrap_like
from costlens.protect.shelf import Loaded, Shelf
from costlens.protect.snapshot import load_tree
from costlens.protect.state_port import Layout, Path, StatePort

__all__ = ["Box", "Piece", "open_tree"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Box:
    """A part of a tensor without holes.

    Args:
        start: Its first place on each dimension.
        shape: How far it reaches.
    """

    start: tuple[int, ...]
    shape: tuple[int, ...]

    def overlap(self, other: Box) -> Box | None:
        """Return what two boxes have in common, None where that is nothing."""
        start = tuple(map(max, self.start, other.start))
        ends = map(min, self._ends(), other._ends())
        shape = tuple(end - begin for begin, end in zip(start, ends, strict=True))
        return Box(start, shape) if all(length > 0 for length in shape) else None

    def within(self, other: Box) -> tuple[slice, ...]:
        """Return where it lies in another box that holds it."""
        begins = (mine - its for mine, its in zip(self.start, other.start, strict=True))
        return tuple(slice(b, b + n) for b, n in zip(begins, self.shape, strict=True))

    @property
    def num_values(self) -> int:
        """Return how many values are in it."""
        return math.prod(self.shape)

    def _ends(self) -> Iterator[int]:
        return (begin + length for begin, length in zip(self.start, self.shape, strict=True))


@dataclass(frozen=True, slots=True)
class Piece:
    """What one rank saved of a tensor that was spread over all.

    Args:
        shape: Of the whole tensor.
        box: Which part it is; None where it has holes, as with strided shards.
        values: The part; without content where only its description was read.
    """

    shape: tuple[int, ...]
    box: Box | None
    values: torch.Tensor


@dataclass(slots=True)
class _Target:
    """What this rank holds of such a tensor now, being filled.

    Args:
        like: The tensor that is there.
        box: The part of it that this rank holds.
        values: Its new values.
    """

    like: torch.Tensor
    box: Box
    values: torch.Tensor
    _seen: set[Box] = field(default_factory=set)
    _num_filled: int = 0

    def needs(self, piece: Piece) -> Box | None:
        """Return which part of a piece is still to come; copies of it are read once."""
        return None if piece.box is None or piece.box in self._seen else self.box.overlap(piece.box)

    def fill(self, piece: Piece) -> None:
        common = self.needs(piece)
        if common is not None and piece.box is not None:
            self._seen.add(piece.box)
            self._num_filled += common.num_values
            self.values[common.within(self.box)] = piece.values[common.within(piece.box)]

    @property
    def is_full(self) -> bool:
        return self._num_filled == self.box.num_values


def open_tree(
    shelf: Shelf, loaded: Loaded, rank: int, world_size: int, source: StatePort
) -> tuple[Any, list[str]]:
    """Return the state that a rank goes on from, and what of it cannot be exact, a sentence each.

    Args:
        shelf: Where the checkpoint is.
        loaded: What the rank loaded: its own shard, or one of the others if it is new.
        rank: This rank.
        world_size: Ranks of the job now.
        source: What is to be restored.

    Raises:
        MisfitError: If the state cannot be taken by this number of ranks.
        CheckpointError: If a shard is not whole, or holds what ``weights_only`` refuses.
        StorageError: If a shard cannot be read.
    """
    manifest = loaded.found.manifest
    if manifest.world_size == world_size:
        return load_tree(loaded.skeleton, loaded.buffer), []
    try:
        layout = source.layout()
    except MisfitError as error:
        raise MisfitError(
            f"the checkpoint at step {manifest.step} was saved by {manifest.world_size} ranks and"
            f" this job has {world_size}: {error}"
        ) from error
    tree = load_tree(loaded.skeleton, loaded.buffer, _as_piece)
    pieces = dict(_find_pieces(tree, layout))
    targets = {
        path: target
        for path, piece in pieces.items()
        if (target := _aim(path, piece, layout)) is not None
    }
    own = rank % manifest.world_size
    _fill(targets, pieces)
    for number in range(manifest.world_size):
        if number != own and not all(target.is_full for target in targets.values()):
            _fill_from(shelf, loaded, number, targets)
    _check_full(targets, manifest)
    tree = _replace(tree, (), {path: wrap_like(t.like, t.values) for path, t in targets.items()})
    if rank >= manifest.world_size:
        source.renew(tree)
    text = f"saved by {manifest.world_size} ranks and resumed by {world_size}"
    return tree, [f"random numbers: {text}, so other draws follow"]


def _as_piece(carrier: Any, part: torch.Tensor, start: tuple[int, ...] | None) -> Piece:  # noqa: ANN401
    if not is_sharded(carrier):
        raise CheckpointError("the checkpoint has a part of a tensor without what it is a part of")
    box = None if start is None else Box(tuple(start), tuple(part.shape))
    return Piece(tuple(carrier.shape), box, part)


def _find_pieces(
    tree: Any,  # noqa: ANN401 - any tree
    layout: Layout = lambda _: None,
    path: Path = (),
) -> Iterator[tuple[Path, Piece]]:
    """Yield what was spread over the ranks, and what is so now by a layout, with its place."""
    if isinstance(tree, Piece):
        yield path, tree
    elif isinstance(tree, torch.Tensor):
        like = layout(path)
        if like is not None and is_sharded(like) and like.shape == tree.shape:
            shape = tuple(tree.shape)
            yield path, Piece(shape, Box((0,) * len(shape), shape), tree)
    elif isinstance(tree, (dict, list, tuple)):
        items = tree.items() if isinstance(tree, dict) else enumerate(tree)
        for key, item in items:
            yield from _find_pieces(item, layout, (*path, key))


def _replace(tree: Any, path: Path, wholes: dict[Path, torch.Tensor]) -> Any:  # noqa: ANN401
    if isinstance(tree, Piece) or path in wholes:
        return wholes.get(path)
    if isinstance(tree, dict):
        items = {key: _replace(item, (*path, key), wholes) for key, item in tree.items()}
        return items if type(tree) is dict else type(tree)(items)
    if isinstance(tree, (list, tuple)):
        return type(tree)(_replace(item, (*path, i), wholes) for i, item in enumerate(tree))
    return tree


def _aim(path: Path, piece: Piece, layout: Layout) -> _Target | None:
    like = layout(path)
    if like is None:
        return None
    place = ".".join(str(key) for key in path[1:])
    start = locate(like) if is_sharded(like) else (0,) * like.dim()
    if piece.box is None or start is None:
        raise MisfitError(
            f"{place!r} is spread over the ranks in strides (FSDP with tensor parallelism), which"
            " cannot be put together for another number of ranks; start as many as have saved it,"
            " or save with torch.distributed.checkpoint"
        )
    if tuple(like.shape) != piece.shape:
        raise MisfitError(
            f"{place!r} is {piece.shape} in the checkpoint and {tuple(like.shape)} here; resume"
            " with what was saved, or start anew at another checkpoint URL"
        )
    local = like.to_local() if is_sharded(like) else like
    box = Box(tuple(start), tuple(local.shape))
    return _Target(like, box, torch.empty(local.shape, dtype=piece.values.dtype))


def _fill(targets: dict[Path, _Target], pieces: dict[Path, Piece]) -> None:
    for path, target in targets.items():
        if path in pieces:
            target.fill(pieces[path])


def _fill_from(shelf: Shelf, loaded: Loaded, number: int, targets: dict[Path, _Target]) -> None:
    name, manifest = loaded.found.name, loaded.found.manifest
    shard, folder = manifest.find_shard(number), folder_of(shelf.run_id, name)

    def read(what: Callable[[], T]) -> T:
        try:
            return what()
        except CheckpointError as error:
            shelf.reject(name, f"of rank {number}, {error}")
            raise

    skeleton = read(lambda: read_skeleton(shelf.store, folder, shard))
    # Tensors without memory: where its pieces lie, before any of its data is read.
    outline = torch.empty(shard.num_bytes, dtype=torch.uint8, device="meta")
    found = dict(_find_pieces(load_tree(skeleton, outline, _as_piece)))
    if any(path in found and target.needs(found[path]) for path, target in targets.items()):
        buffer = read(lambda: read_buffer(shelf.store, folder, manifest, shard))
        _fill(targets, dict(_find_pieces(load_tree(skeleton, buffer, _as_piece))))


def _check_full(targets: dict[Path, _Target], manifest: Manifest) -> None:
    for path, target in targets.items():
        if not target.is_full:
            raise CheckpointError(
                f"the shards of {manifest.world_size} ranks do not add up to {path[-1]!r}"
            )
