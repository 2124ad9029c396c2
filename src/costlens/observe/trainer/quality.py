"""What the training logs that says how good the model is: loss, learning rate, chosen metrics.

Values go to ``parts.values`` as they are; a tensor of a device is read later, off this thread.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch

from costlens.core.scopes import CountTaker
from costlens.observe.trainer.given import Optimizer

__all__ = ["QualityReader"]

# Under these names Lightning's own `grad_norm` helper and most users log the norm of the gradient.
_GRADIENT_NORMS = {"grad_norm": "grad_norm", "grad_2.0_norm_total": "grad_norm"}


# Memory as it lies there, seen as numbers of one type: reading one makes nothing but the result.
_FLOATS = (ctypes.c_float * (sys.maxsize // 4)).from_address(0)
_DOUBLES = (ctypes.c_double * (sys.maxsize // 8)).from_address(0)


def _read_host(value: object) -> float | None:
    """Return the number of a plain tensor of the CPU, or None where only torch may look.

    In a loop of 0.6 ms an iteration this takes 3 µs, and any operation of torch on it 15.
    """
    # A subclass must not notice that it is read, and a negative view holds another number.
    if type(value) is not torch.Tensor or not value.is_cpu or value.is_neg():
        return None
    kind = value.dtype
    if (kind is not torch.float32 and kind is not torch.float64) or value.numel() != 1:
        return None
    address = value.data_ptr()
    if address & 7 and (address & 3 or kind is torch.float64):  # it lies across these
        return None
    return _FLOATS[address >> 2] if kind is torch.float32 else _DOUBLES[address >> 3]


class QualityReader:
    """Hands on what a Trainer logged; training thread.

    Args:
        values: Takes the values.
        patterns: Globs of the logged names to keep.
    """

    def __init__(self, values: CountTaker, patterns: Sequence[str]) -> None:
        self._values = values
        self._patterns = tuple(patterns)
        self._seen: dict[str, Any] = {}
        self._learning_rate: Any = None
        self._has_loss = False

    def read_batch(self, outputs: object, factor: int, number: int) -> None:
        """Take the loss of a training batch; about 3 µs, and 15 for a tensor of a device.

        Args:
            outputs: What the training step gave, as Lightning hands it to hooks.
            factor: What Lightning divided the loss by.
            number: Number of the iteration.
        """
        if type(outputs) is dict:  # as it is: the question for any mapping takes 0.5 µs
            loss = outputs.get("loss")
        else:
            loss = outputs.get("loss") if isinstance(outputs, Mapping) else None
        if loss is None:
            return
        self._has_loss = True
        known = _read_host(loss)
        if known is not None:
            self._values.add_metric("loss", known * factor, number)
        else:
            self._values.add_metric("loss", loss if factor == 1 else loss * factor, number)

    def read_learning_rate(self, optimizer: Optimizer, number: int) -> None:
        """Take the learning rate of an optimizer's first group when it changed; under 1 µs."""
        rate = optimizer.param_groups[0].get("lr")
        # Comparing a tensor would wait for its device.
        if type(rate) is not float or rate != self._learning_rate:
            self._learning_rate = rate
            if rate is not None:
                self._values.add_metric("learning_rate", rate, number)

    def read_logged(self, metrics: Mapping[str, Any], number: int) -> None:
        """Take the logged values that are new and wanted; once a window and evaluation.

        Args:
            metrics: Logged values by name: numbers or tensors of one element.
            number: Number of the iteration they belong to.
        """
        for name, value in metrics.items():
            wanted = self._name(name)
            if wanted is None or self._seen.get(name) is value:
                continue
            self._seen[name] = value
            self._values.add_metric(wanted, value, number)

    def _name(self, name: str) -> str | None:
        if name == "loss" and self._has_loss:
            return None
        if name in _GRADIENT_NORMS:
            return _GRADIENT_NORMS[name]
        return name if any(fnmatchcase(name, pattern) for pattern in self._patterns) else None
