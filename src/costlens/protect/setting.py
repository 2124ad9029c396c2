"""What a training runs on, so that a resume can say what differs from where it was saved."""

from __future__ import annotations

import sys
from typing import Any

import torch

__all__ = ["compare_settings", "describe_setting"]


def describe_setting(device: str | None, precision: str | None) -> dict[str, Any]:
    """Return what the last bits of a training depend on.

    Args:
        device: Kind of device, such as ``cuda``.
        precision: How the loop computes, such as ``bf16-mixed``.
    """
    distributed = sys.modules.get("torch.distributed")
    is_distributed = distributed is not None and distributed.is_initialized()
    return {
        "device": device,
        "precision": precision,
        "torch": str(torch.__version__),
        "world size": distributed.get_world_size() if distributed and is_distributed else 1,
    }


def compare_settings(saved: dict[str, Any], here: dict[str, Any]) -> list[str]:
    """Return what differs, a sentence each."""
    return [
        f"{what}: {saved[what]} at the save and {value} now, so numbers differ in the last bits"
        for what, value in here.items()
        if saved[what] != value
    ]
