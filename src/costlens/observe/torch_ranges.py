"""The two kinds of :class:`Ranges` that torch offers, and which of them the settings ask for.

Imported only where ranges are asked for. Neither initialises CUDA.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from threading import get_ident
from typing import Any, Literal

import torch
import torch.cuda.nvtx
from torch.autograd.profiler import record_function

from costlens.core.log import log
from costlens.observe.ranges import Ranges

__all__ = ["NvtxRanges", "ProfilerRanges", "make_ranges"]

# Not annotated in torch.
_record_function: Any = record_function
_cuda: Any = torch.cuda
_nvtx: Any = torch.cuda.nvtx
_backend: Any = torch.backends.cuda


class ProfilerRanges:
    """Ranges of ``torch.profiler``; about 9 µs a range, whether a profiler runs or not."""

    def open(self, name: str, *, is_elsewhere: bool) -> Callable[[], object]:
        """Return what closes the range again."""
        opened = _record_function(name)
        opened.__enter__()
        return lambda: opened.__exit__(None, None, None)


class NvtxRanges:
    """NVTX ranges for Nsight, as soon as the training has initialised CUDA; about 1 µs a range."""

    def __init__(self) -> None:
        self._is_ready = False
        # Ranges of a thread that another one closed: only the thread itself can take them off.
        self._num_due: Counter[int] = Counter()

    def open(self, name: str, *, is_elsewhere: bool) -> Callable[[], object] | None:
        """Return what closes the range again, or None before CUDA is initialised."""
        if not self._is_ready:
            self._is_ready = _cuda.is_initialized()
            if not self._is_ready:
                return None
        if is_elsewhere:
            started = _nvtx.range_start(name)
            return lambda: _nvtx.range_end(started)
        thread = get_ident()
        self._settle(thread)
        _nvtx.range_push(name)
        return lambda: self._pop(thread)

    def _pop(self, thread: int) -> None:
        self._num_due[thread] += 1
        self._settle(get_ident())

    def _settle(self, thread: int) -> None:
        while self._num_due[thread]:
            self._num_due[thread] -= 1
            _nvtx.range_pop()


def make_ranges(kind: Literal["nvtx", "record_function"]) -> Ranges:
    """Return the ranges of a kind; warns where this torch cannot have them."""
    if kind == "record_function":
        return ProfilerRanges()
    if not _backend.is_built():
        log.warning(
            "costlens.ranges.none",
            message="COSTLENS_RANGES=nvtx shows nothing: this torch is built without CUDA; "
            "record_function shows phases in torch.profiler",
        )
    return NvtxRanges()
