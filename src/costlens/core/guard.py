"""The one place that swallows exceptions: a fault of ours never reaches the training.

It is counted, and logged once per cause. Under pytest (or with ``strict``) it is raised again, so
that it cannot hide in our own tests; checkpoint and configuration errors do not come here, for the
user asked for those.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, cast

from costlens.config import is_under_test
from costlens.core.code_locations import locate_error

__all__ = ["Faults", "faults", "is_inert_process", "pid_guard"]

_MAX_CAUSES = 64

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Faults:
    """Counts the faults of costlens itself, by the place they happened in.

    Attributes:
        counts: Faults by place.
        strict: Whether a fault is raised again; None asks whether a test is running.
    """

    def __init__(self) -> None:
        # A signal handler may interrupt a thread that holds it, and have a fault of its own.
        self._lock = threading.RLock()
        self._logged: set[tuple[str, str]] = set()
        self.counts: dict[str, int] = {}
        self.strict: bool | None = None

    @property
    def num_total(self) -> int:
        """Return how many faults were swallowed in this process."""
        return sum(self.counts.values())

    def absorb(self, place: str, error: BaseException) -> None:
        """Count a fault and log it once per place and type; raise it where tests ask for that.

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
            self._log(place, error)
        if self.strict or (self.strict is None and is_under_test()):
            raise error

    def contain(self, place: str) -> _Containment:
        """Return a context manager that absorbs any ``Exception`` of its block."""
        return _Containment(self, place)

    def call(
        self, place: str, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T | None:
        """Return what ``function`` returns, or None when it failed and the fault was absorbed."""
        with self.contain(place):
            return function(*args, **kwargs)
        return None

    def shield(self, place: str, function: Callable[_P, _T]) -> Callable[_P, _T | None]:
        """Return ``function`` with its faults absorbed, for what is called in every iteration.

        What :meth:`call` does, at half its price, and with arguments by position only.
        """
        plain: Callable[..., _T] = function

        def shielded(*args: Any) -> _T | None:
            try:
                return plain(*args)
            except Exception as error:
                self.absorb(place, error)
            return None

        return cast("Callable[_P, _T | None]", shielded)

    def renew_lock(self) -> None:
        """Make the lock anew in a forked child, where nobody is left to release the old one."""
        self._lock = threading.RLock()

    def _log(self, place: str, error: BaseException) -> None:
        # core/log.py contains what its listeners raise, and so needs this module first.
        from costlens.core.log import log

        # What an error says may be data: a user's own functions are called here, too. Its type and
        # where it came from are told to all, its text to who debugs on standard error.
        try:
            log.warning(
                "costlens.fault",
                place=place,
                error_type=type(error).__name__,
                stack=locate_error(error),
                message="a fault inside costlens was contained; training goes on unharmed",
                exc_info=error,
            )
        except Exception:  # such as an error whose text cannot be made
            with self._lock:
                self.counts["guard.log"] = self.counts.get("guard.log", 0) + 1


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
    ask = getattr(sys.modules.get("torch.utils.data"), "get_worker_info", None)
    return ask is not None and ask() is not None
