"""Samples and tokens of a batch, as far as the batch itself tells.

Counts on the host go into the run's counters; a sum on a device is handed on as a tensor and read
later. What a batch does not tell stays unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, SupportsInt

import torch

from costlens.core.recorder import Counters
from costlens.core.scopes import CountTaker

__all__ = ["IGNORED_LABEL", "BatchCounter", "count_samples"]

IGNORED_LABEL = -100
"""The label that torch's cross entropy leaves out by default."""

_NAMES = ("samples", "slots", "tokens", "loss_tokens")
_MAX_DEPTH = 8


class BatchCounter:
    """Adds what batches hold to the counters of a run.

    Args:
        counters: Takes numbers of the host.
        values: Takes tensors of a device.
        tokens: The user's own count: returns the non-padding tokens of a batch, or a mapping with
            any of ``tokens``, ``slots``, ``loss_tokens`` and ``samples``; numbers or tensors.
    """

    def __init__(
        self,
        counters: Counters,
        values: CountTaker,
        tokens: Callable[[Any], Any] | None = None,
    ) -> None:
        self._values = values
        self._tokens = tokens
        self._add_samples = counters.add_samples
        self._add = {name: getattr(counters, "add_" + name) for name in _NAMES}

    def count(self, batch: object, number: int) -> None:
        """Count the batch of iteration ``number``; training thread, 1 to 15 µs, no device waits.

        Args:
            batch: What the loader gave.
            number: Number of the iteration in the attempt, from 0.
        """
        kind = type(batch)
        if self._tokens is None and kind in _WITHOUT_NAMES:
            if kind is not torch.Tensor:
                samples = _first_size(batch, _MAX_DEPTH)
            else:
                samples = batch.shape[0] if batch.dim() else None  # type: ignore[attr-defined]
            if samples is not None:
                self._add_samples(samples)
            return
        found = self._ask_user(batch)
        ids = _member(batch, "input_ids")
        if ids is not None:
            self._count_text(batch, ids, found, number)
        known = found.get("samples")
        self._put("samples", count_samples(batch) if known is None else known, number)
        for name in _NAMES[1:]:
            self._put(name, found.get(name), number)

    def _ask_user(self, batch: object) -> Mapping[str, Any]:
        if self._tokens is None:
            return _NOTHING
        answer = self._tokens(batch)
        if isinstance(answer, Mapping):
            return answer
        return {"tokens": answer}

    def _count_text(
        self, batch: object, ids: torch.Tensor, found: Mapping[str, Any], number: int
    ) -> None:
        if "slots" not in found:
            self._put("slots", ids.numel(), number)
        if "tokens" not in found:
            mask = _member(batch, "attention_mask")
            if mask is not None and mask.shape == ids.shape:
                self._put("tokens", _count_true(mask), number)
        if "loss_tokens" not in found:
            labels = _member(batch, "labels")
            # Labels of whole sequences are not tokens, and floats are no labels.
            if labels is not None and labels.dim() > 1 and not labels.is_floating_point():
                self._put("loss_tokens", (labels != IGNORED_LABEL).sum(), number)

    def _put(self, name: str, count: SupportsInt | None, number: int) -> None:
        if count is None:
            return
        if isinstance(count, torch.Tensor):
            if not count.is_cpu:
                self._values.add_count(name, count, number)
                return
            count = count.item()
        self._add[name](int(count))


_NOTHING: Mapping[str, Any] = {}
_WITHOUT_NAMES = frozenset({torch.Tensor, list, tuple})


def _member(batch: object, name: str) -> torch.Tensor | None:
    if isinstance(batch, Mapping):
        member = batch.get(name)
        if isinstance(member, torch.Tensor):
            return member
    return None


def _count_true(mask: torch.Tensor) -> torch.Tensor:
    # A sum in half precision is wrong beyond 2048.
    return (mask != 0).sum() if mask.is_floating_point() else mask.sum()


def count_samples(batch: object) -> int | None:
    """Return the first dimension of the first tensor in a batch, or None where there is none.

    Args:
        batch: A tensor, or mappings and sequences of tensors; members may be None.
    """
    return _first_size(batch, _MAX_DEPTH)


def _first_size(batch: object, depth: int) -> int | None:
    if isinstance(batch, torch.Tensor):
        return batch.shape[0] if batch.dim() else None
    if depth == 0:
        return None
    members: Iterable[object]
    if isinstance(batch, Mapping):
        members = batch.values()
    elif isinstance(batch, (list, tuple)):
        members = batch
    else:
        return None
    for member in members:
        size = None if member is None else _first_size(member, depth - 1)
        if size is not None:
            return size
    return None
