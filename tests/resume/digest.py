"""One text for every bit of a training's state."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import torch


def digest_of(*owners: Any) -> str:
    """Return the hash of all values in the states of some objects, tensors to the bit."""
    found = hashlib.sha256()

    def add(value: Any) -> None:
        if hasattr(value, "to_local"):  # the part that this rank holds
            value = value.to_local()
        if isinstance(value, torch.Tensor):
            found.update(
                value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
            )
        elif isinstance(value, dict):
            for key in value:
                found.update(str(key).encode())
                add(value[key])
        elif isinstance(value, (list, tuple)):
            for item in value:
                add(item)
        else:
            found.update(json.dumps(value, default=str).encode())

    for owner in owners:
        add(owner.state_dict())
    return found.hexdigest()
