"""The one place that swallows exceptions: a fault of ours is logged once per cause, counted, and never reaches the training.

Under pytest (or with ``strict``) the exception is raised again, so that a fault cannot hide in our
own tests. Checkpoint and configuration errors do not come here: the user asked for those and must
see them.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from costlens.config import is_under_test
from costlens.core.log import log

__all__ = ["Faults", "faults", "is_inert_process", "pid_guard"]

_MAX_CAUSES = 64


class Faults:
    """Counts the faults of costlens itself, by the place they happened in."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logged: set[tuple[str, str]] = set()
        self.counts: dict[str, int] = {}
        self.strict: bool | None = None

    @property
    def num_total(self) -> int:
        """Return how many faults were swallowed in this process."""
        return sum(self.counts.values())

    def absorb(self, place: str, error: BaseException) -> None:
        """Count a fault and log it once per place and type; raise it again where tests ask for that.

        Args:
            place: A short constant name of the code that failed, such as ``pipeline.drain``; it
                becomes a metric attribute.
            error: What was raised.
        """
        cause = (place, type(error).__name__)
        with self._lock:
            self.counts[place] = self.counts.get(place, 0) + 1
            is_new = cause not in self._logged and len(self._logged) < _MAX_CAUSES
            if is_new:
                self._logged.add(cause)
        if is_new:
            log.warning(
                "costlens.fault",
                place=place,
                error_type=type(error).__name__,
                message="a fault inside costlens was contained; training goes on unharmed",
                exc_info=error,
            )
        if self.strict or (self.strict is None and is_under_test()):
            raise error

    def contain(self, place: str) -> _Containment:
        """Return a context manager that absorbs any ``Exception`` of its block."""
        return _Containment(self, place)

    def call(self, place: str, function: Callable[..., Any], *args: Any) -> Any:
        """Return what ``function`` returns, or None when it failed and the fault was absorbed."""
        with self.contain(place):
            return function(*args)
        return None


class _Containment:
    __slots__ = ("_faults", "_place")

    def __init__(self, owner: Faults, place: str) -> None:
        self._faults = owner
        self._place = place

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if error is None or not isinstance(error, Exception):
            return False
        self._faults.absorb(self._place, error)
        return True


faults = Faults()
"""The faults of this process."""


def pid_guard() -> Callable[[], bool]:
    """Return a test that is true only in the process that asked for it, and false in its forks."""
    pid = os.getpid()
    return lambda: os.getpid() == pid


def is_inert_process() -> bool:
    """Return whether this process must not watch: a worker of a data loader, where torch says so.

    A spawned rank trains and counts; only ``get_worker_info()`` marks a loader worker. torch is
    asked only if it is loaded already.
    """
    data = sys.modules.get("torch.utils.data")
    return data is not None and data.get_worker_info() is not None
