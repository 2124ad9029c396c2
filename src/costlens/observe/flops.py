"""The probe that says what a rank's MFU is made of: its FLOPs, and its devices' peak.

Reads nothing of the machine: the name of the GPUs comes from the other probes, the number of
parameters from whoever watches the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from costlens.account.hardware import load_hardware
from costlens.account.mfu import describe_flops
from costlens.config import Config
from costlens.core.attempt_state import AttemptState

__all__ = ["FlopsProbe", "count_parameters"]

_CUT_UP = "FullyShardedDataParallel"


class FlopsProbe:
    """Fills ``flops`` of the record, where somebody asks for MFU.

    Args:
        config: The settings of the run.
        state: The attempt; its rank says what is driven.
    """

    name = "flops"

    def __init__(self, config: Config, state: AttemptState) -> None:
        self._config = config
        self._state = state

    def load(self) -> None:
        """Read the table of peaks, a file of the package."""
        load_hardware()

    def start(self) -> None:
        """Do nothing."""

    def sample(self, now_ns: int) -> None:
        """Do nothing."""

    def contribute(self) -> Mapping[str, object]:
        """Return what is known by now."""
        state = self._state
        flops = describe_flops(self._config, state.describe_rank(), state.num_parameters)
        return {"flops": flops}

    def stop(self) -> None:
        """Do nothing."""


def count_parameters(model: object) -> int | None:
    """Return the parameters of a module, shared ones once; None where they cannot be counted.

    A few microseconds a tensor and no sync; training thread, before the first step. A lazy module
    has no shape before its first forward, and of what FullyShardedDataParallel has cut up a rank
    sees its own shards only. DTensors and ZeRO's parameters know their whole size.

    Args:
        model: A ``torch.nn.Module``.
    """
    module: Any = model
    if any(type(part).__name__ == _CUT_UP for part in module.modules()):
        return None
    try:
        sizes = [getattr(p, "ds_numel", None) or p.numel() for p in module.parameters()]
    except ValueError:  # of a lazy module
        return None
    return sum(sizes) or None
