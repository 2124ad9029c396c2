"""Moving a batch to a device, whatever it is made of; ``loader`` calls it where the user asks."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import torch

__all__ = ["move"]


def move(batch: Any, device: torch.device) -> Any:  # noqa: ANN401 - a batch may be anything
    """Return the batch with every tensor in it on ``device``; the batch itself is not changed.

    Looks into mappings, lists, tuples, named tuples and dataclasses, and asks everything else that
    has a ``to`` (batches of libraries) to move itself. The copy overlaps with the host's work where
    the batch lies in pinned memory.

    Args:
        batch: The batch.
        device: Where to.
    """
    if isinstance(batch, torch.Tensor):
        # To the CPU it would not be safe to read the copy before a synchronisation.
        return batch.to(device, non_blocking=device.type != "cpu")
    if callable(getattr(batch, "to", None)):
        return batch.to(device)
    if isinstance(batch, dict):
        moved = copy.copy(batch)
        for key, item in batch.items():
            moved[key] = move(item, device)
        return moved
    if isinstance(batch, (list, tuple)):
        items = [move(item, device) for item in batch]
        return type(batch)(*items) if hasattr(batch, "_fields") else type(batch)(items)
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        twin = copy.copy(batch)
        for field in dataclasses.fields(batch):
            # A frozen dataclass is still a container of tensors.
            object.__setattr__(twin, field.name, move(getattr(batch, field.name), device))
        return twin
    return batch
