"""A training state as one flat buffer: which bytes each tensor takes, and the tree around them.

What ``state.py`` gathers is a tree of dicts, lists and tuples with tensors in it. :func:`pack` puts
every plain tensor into a slot of one buffer, so that a snapshot is a row of copies into memory that
is reused; :func:`unpack` makes the tree again around views of that buffer. Pure but for looking at
tensors; nothing is copied here.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import torch

from costlens.errors import CheckpointError
from costlens.protect.sharded import is_sharded, join, locate, split

__all__ = ["Join", "Packing", "Slot", "own_tensors", "pack", "unpack", "view_slot"]

_ALIGNMENT = 64
# What torch.load(weights_only=True) takes back without being told more.
_LEAVES = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size)
_DICTS = (dict, OrderedDict, Counter)
_MARK = "costlens.slot"
# torch writes empty bytes as a call that it then refuses to load.
_BYTES_MARK = "costlens.bytes"
_SHARDED_MARK = "costlens.sharded"

Join: TypeAlias = Callable[[Any, torch.Tensor, Any], Any]
"""Takes carrier, part and start, as ``sharded.split`` and ``sharded.locate`` gave them."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a tensor lies in the buffer.

    Args:
        dtype: Name of its type in torch, such as ``float32``.
        shape: Its shape.
        offset: First byte, a multiple of 64.
        num_bytes: Bytes it takes, >= 0.
    """

    dtype: str
    shape: tuple[int, ...]
    offset: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Packing:
    """A state tree taken apart.

    Args:
        skeleton: The tree with a mark in the place of each tensor that has a slot; odd tensors
            (sparse, quantized, …) are still in it.
        slots: Where the tensors go, in order.
        tensors: The tensors themselves, one a slot.
        num_bytes: Size of the buffer.
    """

    skeleton: Any
    slots: tuple[Slot, ...]
    tensors: tuple[torch.Tensor, ...]
    num_bytes: int


class _Packer:
    def __init__(self) -> None:
        self.slots: list[Slot] = []
        self.tensors: list[torch.Tensor] = []
        self.num_bytes = 0
        self._known: dict[tuple[Any, ...], int] = {}

    def take(self, value: Any, path: tuple[object, ...]) -> Any:  # noqa: ANN401 - any tree
        if isinstance(value, torch.Tensor):
            return self._take_tensor(value)
        kind = type(value)
        if kind in _DICTS:
            taken = {
                self.take(key, path): self.take(item, (*path, key)) for key, item in value.items()
            }
            return taken if kind is dict else kind(taken)
        if _mark_of(value) is not None:
            raise CheckpointError(f"{_spell(path)} begins with {value[0]!r}, which is reserved")
        if kind is bytes:
            return (_BYTES_MARK, value.decode("latin-1"))
        if kind in {list, tuple}:
            return kind(self.take(item, (*path, index)) for index, item in enumerate(value))
        if kind is set:
            return {self.take(item, path) for item in value}
        # Not its subclasses: an Enum that is an int would not load.
        if kind in _LEAVES:
            return value
        raise CheckpointError(
            f"{_spell(path)} cannot be part of a checkpoint: {kind.__module__}.{kind.__qualname__}"
            " does not load with weights_only=True. Allowed are tensors, numbers, text, bytes and"
            " dicts, lists, tuples and sets of them; convert it, or leave it out"
        )

    def _take_tensor(self, tensor: torch.Tensor) -> Any:  # noqa: ANN401 - a mark or a tensor
        if is_sharded(tensor):
            carrier, part = split(tensor)
            return (_SHARDED_MARK, [carrier, self._take_tensor(part), locate(tensor)])
        if not _is_plain(tensor):
            return tensor.detach().clone()
        # Tied weights are one slot, and come back as one tensor.
        identity = (
            *(tensor.data_ptr(), tensor.storage_offset(), tensor.dtype),
            *(tensor.shape, tensor.stride(), tensor.device),
        )
        index = self._known.get(identity) if tensor.numel() else None
        if index is None:
            index = self._known[identity] = len(self.slots)
            num_bytes = tensor.numel() * tensor.element_size()
            name = _name_dtype(tensor.dtype)
            self.slots.append(Slot(name, tuple(tensor.shape), self.num_bytes, num_bytes))
            self.tensors.append(tensor)
            self.num_bytes += -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
        return (_MARK, index)


def pack(tree: Any) -> Packing:  # noqa: ANN401 - any tree
    """Return the tree taken apart; looks at every node, about 1 µs each.

    Args:
        tree: Dicts, lists, tuples and sets of tensors, numbers, text, bytes, dtypes and devices.

    Raises:
        CheckpointError: If a part of it would not load with ``weights_only=True``; names its place.
    """
    packer = _Packer()
    skeleton = packer.take(tree, ())
    return Packing(skeleton, tuple(packer.slots), tuple(packer.tensors), packer.num_bytes)


def unpack(
    skeleton: Any,  # noqa: ANN401 - any tree
    slots: tuple[Slot, ...],
    buffer: torch.Tensor,
    join_part: Join = join,
) -> Any:  # noqa: ANN401 - any tree
    """Return the tree around views of the buffer; nothing is copied.

    Args:
        skeleton: As :func:`pack` made it.
        slots: The slots that its marks name.
        buffer: Flat bytes (``uint8``), aligned like any tensor, that hold all slots.
        join_part: Makes what stands for a tensor that was spread over the ranks.

    Raises:
        CheckpointError: If a mark names no slot, or a slot does not lie in the buffer.
    """
    views = [view_slot(slot, buffer) for slot in slots]

    def rebuild(value: Any) -> Any:  # noqa: ANN401 - any tree
        kind = type(value)
        mark = _mark_of(value)
        if mark == _BYTES_MARK:
            return str(value[1]).encode("latin-1")
        if mark == _MARK:
            if not isinstance(value[1], int) or not 0 <= value[1] < len(views):
                raise CheckpointError(f"the checkpoint names a tensor {value[1]!r} that it lacks")
            return views[value[1]]
        if mark == _SHARDED_MARK:
            content = value[1] if type(value[1]) is list else []
            carrier, part, start = content if len(content) == 3 else (None, None, None)
            return join_part(carrier, rebuild(part), start)
        if kind in _DICTS:
            rebuilt = {rebuild(key): rebuild(item) for key, item in value.items()}
            return rebuilt if kind is dict else kind(rebuilt)
        if kind in {list, tuple, set}:
            return kind(map(rebuild, value))
        return value

    return rebuild(skeleton)


def view_slot(slot: Slot, buffer: torch.Tensor) -> torch.Tensor:
    """Return the tensor of a slot as a view of the buffer.

    Raises:
        CheckpointError: If the slot does not fit its shape, its type or the buffer.
    """
    dtype = getattr(torch, slot.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise CheckpointError(f"this torch knows no type {slot.dtype!r}, which the checkpoint has")
    end = slot.offset + slot.num_bytes
    if slot.offset % _ALIGNMENT or not 0 <= slot.offset <= end <= buffer.numel():
        raise CheckpointError(f"a tensor at byte {slot.offset} does not lie in the checkpoint")
    try:
        return buffer[slot.offset : end].view(dtype).view(slot.shape)
    except RuntimeError as error:
        raise CheckpointError(
            f"{slot.num_bytes} bytes are no {slot.dtype} tensor of shape {slot.shape}"
        ) from error


def own_tensors(tree: Any) -> Any:  # noqa: ANN401 - any tree
    """Return the tree with tensors in memory of their own, rather than in a checkpoint's buffer.

    What takes tensors over and keeps them would keep the buffer, and with it the whole state. A
    ``torch.Generator`` even crashes on a state that does not begin its storage (torch 2.13).
    """
    if isinstance(tree, torch.Tensor):
        return tree.clone()
    kind = type(tree)
    if kind in _DICTS:
        owned = {key: own_tensors(item) for key, item in tree.items()}
        return owned if kind is dict else kind(owned)
    if kind in {list, tuple}:
        return kind(own_tensors(item) for item in tree)
    return tree


@cache
def _name_dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _mark_of(value: Any) -> str | None:  # noqa: ANN401 - any node
    if type(value) is tuple and len(value) == 2 and type(value[0]) is str:
        return value[0] if value[0] in {_MARK, _BYTES_MARK, _SHARDED_MARK} else None
    return None


def _is_plain(tensor: torch.Tensor) -> bool:
    # A subclass (a quantized weight) is more than its bytes.
    return (
        type(tensor) in {torch.Tensor, torch.nn.Parameter}
        and tensor.layout is torch.strided
        and not tensor.is_quantized
        and not tensor.is_conj()
        and not tensor.is_neg()
        and tensor.device.type != "meta"
    )


def _spell(path: tuple[object, ...]) -> str:
    return "state" + "".join(f"[{key!r}]" for key in path)
