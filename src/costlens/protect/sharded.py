"""Tensors of which each rank holds a part (FSDP, tensor parallelism): the part, and what is around.

A snapshot copies the part like any other tensor; mesh, placement, whole shape and where the part
begins go with the tree. Parts come back on the same ranks, each its own; ``regroup.py`` puts them
together for others.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from costlens.errors import CheckpointError

if TYPE_CHECKING:
    import torch

__all__ = [
    "describe_sharding",
    "has_parts",
    "is_sharded",
    "join",
    "locate",
    "prepare",
    "split",
    "wrap_like",
]

_MODULE = "torch.distributed.tensor"


def is_sharded(tensor: torch.Tensor) -> bool:
    """Return whether this is a ``DTensor``; 0.3 µs, and loads nothing."""
    module = sys.modules.get(_MODULE)
    return module is not None and isinstance(tensor, module.DTensor)


def describe_sharding(tensor: Any) -> str:  # noqa: ANN401 - a tensor
    """Return how a tensor is spread over the ranks: ``whole``, or the placement on each dimension.

    Args:
        tensor: Any tensor.
    """
    if not is_sharded(tensor):
        return "whole"
    return f"{tensor.placements} over {tuple(tensor.device_mesh.shape)} ranks"


def has_parts(skeleton: bytes) -> bool:
    """Return whether a tree has tensors of which each rank holds a part.

    Args:
        skeleton: The tree as ``torch.save`` wrote it, which compresses nothing.
    """
    return _MODULE.encode() in skeleton


def prepare(skeleton: bytes) -> None:
    """Import what the tree of a checkpoint names: ``weights_only`` knows it only from then on.

    Args:
        skeleton: As for :func:`has_parts`.
    """
    if has_parts(skeleton):
        importlib.import_module(_MODULE)


def split(tensor: Any) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: ANN401 - a DTensor
    """Return a carrier without content and the part that this rank holds; about 0.1 ms.

    Args:
        tensor: A ``DTensor``.
    """
    part = tensor.detach().to_local()
    return _wrap(tensor, part.new_empty(0)), part


def join(carrier: Any, part: torch.Tensor, start: object = None) -> torch.Tensor:  # noqa: ANN401
    """Return the ``DTensor`` that :func:`split` took apart, around ``part``; not a copy.

    Args:
        carrier: As :func:`split` made it, in this launch or an earlier one.
        part: What this rank held.
        start: Where it began; known to the mesh as well.

    Raises:
        CheckpointError: If the carrier is none.
    """
    del start
    if not is_sharded(carrier):
        raise CheckpointError("the checkpoint has a part of a tensor without what it is a part of")
    return _wrap(carrier, part.to(carrier.device))


def locate(tensor: Any) -> tuple[int, ...] | None:  # noqa: ANN401 - a DTensor
    """Return where the part that this rank holds begins in the whole tensor; about 10 µs.

    As ``torch.chunk`` cuts, dimension of the mesh by dimension. None where the part is not one box,
    as the strides of FSDP over tensor parallelism, or sums that are yet to be added.

    Args:
        tensor: A ``DTensor``.
    """
    module, coordinate = sys.modules[_MODULE], tensor.device_mesh.get_coordinate()
    start, shape = [0] * tensor.dim(), list(tensor.shape)
    if coordinate is None:
        return None
    for index, placement in enumerate(tensor.placements):
        if type(placement) is module.Shard:
            dim = placement.dim
            width = -(-shape[dim] // tensor.device_mesh.size(index))
            skipped = min(width * coordinate[index], shape[dim])
            start[dim] += skipped
            shape[dim] = min(width, shape[dim] - skipped)
        elif type(placement) is not module.Replicate:
            return None
    return tuple(start) if shape == list(tensor.to_local().shape) else None


def wrap_like(like: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
    """Return a part as a tensor that is spread over the ranks as another one is, if that is.

    Args:
        like: A tensor, a ``DTensor`` or not.
        part: What this rank holds.
    """
    return _wrap(like, part.to(like.device)) if is_sharded(like) else part


def _wrap(like: Any, part: torch.Tensor) -> torch.Tensor:  # noqa: ANN401 - a DTensor
    kind: Any = sys.modules[_MODULE].DTensor
    wrapped: torch.Tensor = kind.from_local(
        part,
        like.device_mesh,
        like.placements,
        run_check=False,  # it would be a collective
        shape=like.shape,
        stride=like.stride(),
    )
    return wrapped
