"""The connection to the GPU driver's library: opened, shared with nobody, renewed after a fork.

``nvml.py`` opens it on the pipeline thread. What the library refuses becomes a short constant word,
never a text: those words stand in records and metrics.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from typing import Any

__all__ = ["CLOSED", "LOST", "PERMANENT", "Refusal", "Session", "word_of"]

_LIBRARY = "libnvidia-ml.so.1"

_WORDS = {
    1: "uninitialized",
    2: "invalid_argument",
    3: "not_supported",
    4: "no_permission",
    6: "not_found",
    9: "no_driver",
    10: "timeout",
    12: "no_library",
    13: "not_in_library",
    15: "lost",
    16: "reset_required",
    17: "refused_by_system",
    18: "version_mismatch",
    20: "no_memory",
    999: "unknown_error",
}

CLOSED = "uninitialized"
"""The word that means that the session is not open: a fork, or somebody closed it."""

LOST = frozenset({"lost", "reset_required"})
"""Words that mean that a device is gone."""

PERMANENT = frozenset({"not_supported", "no_permission", "not_in_library", "invalid_argument"})
"""Words after which asking again makes no sense."""


class Refusal(Exception):  # noqa: N818 - a refusal is an answer, not an error of ours
    """The library refused a call.

    Args:
        word: Why, such as ``not_supported``.
    """

    def __init__(self, word: str) -> None:
        super().__init__(word)
        self.word = word


class Session:
    """The driver's library in this process; one pair of ``open`` and ``close`` a run.

    Attributes:
        reason: Why the library cannot be used; None while it can.
        generation: Counts the openings, so that handles of an earlier one are known to be stale.
    """

    def __init__(self) -> None:
        self.reason: str | None = "not_opened"
        self.generation = 0
        self._nvml: Any = None
        self._mismatch: type[Exception] = Refusal
        self._pid: int | None = None

    @property
    def is_open(self) -> bool:
        """Return whether calls can be made; a forked child has to open it again."""
        return self._pid == os.getpid()

    @property
    def is_stale(self) -> bool:
        """Return whether it was open, and a fork or somebody else has closed it."""
        return self._pid is not None and not self.is_open

    def load(self) -> None:
        """Import what the session needs; calling thread, 0.1 ms without a driver, else 30 ms."""
        try:
            ctypes.CDLL(_LIBRARY)
        except OSError:
            self.reason = "no_library"
            return
        try:
            import pynvml
        except ImportError:
            self.reason = "no_package"
            return
        self._nvml = pynvml
        self._mismatch = getattr(pynvml, "NVMLLibraryMismatchError", pynvml.NVMLError)
        _watch_forks()

    def open(self) -> bool:
        """Open the library; return whether it can be used. Takes seconds where no GPU is awake."""
        self._pid = None
        if self._nvml is None:
            return False
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            self.reason = _name(error)
            return False
        self._pid = os.getpid()
        self.reason = None
        self.generation += 1
        return True

    def expire(self) -> None:
        """Take the opening for lost: the library says that it is not initialised."""
        self._pid = 0

    def close(self) -> None:
        """Close the library, unless this is a copy of the process that opened it."""
        if self.is_open:
            self._pid = None
            self.reason = "not_opened"
            with contextlib.suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()

    def call(self, function: str, *arguments: object) -> Any:  # noqa: ANN401 - as the library has it
        """Return what a function of the library returns.

        Args:
            function: Its name in nvidia-ml-py.
            *arguments: Its arguments.

        Raises:
            Refusal: If the library refuses, or this nvidia-ml-py does not know the function.
        """
        method = getattr(self._nvml, function, None)
        if method is None:
            raise Refusal("not_in_library")
        try:
            return method(*arguments)
        except self._nvml.NVMLError as error:
            raise Refusal(_name(error)) from None
        except self._mismatch:
            # So nvidia-ml-py says that an older driver does not have a function.
            raise Refusal("not_in_library") from None

    def new(self, structure: str) -> Any:  # noqa: ANN401 - as the library has it
        """Return an empty structure of nvidia-ml-py, by its name.

        Raises:
            Refusal: If this nvidia-ml-py does not know it.
        """
        make = getattr(self._nvml, structure, None)
        if make is None:
            raise Refusal("not_in_library")
        return make()


def word_of(code: int) -> str:
    """Return the word for a result code of the library."""
    return _WORDS.get(code, "unknown_error")


def _name(error: Any) -> str:  # noqa: ANN401 - an NVMLError
    return word_of(int(error.value))


_state = {"registered": False}


def _watch_forks() -> None:
    if not _state["registered"] and hasattr(os, "register_at_fork"):
        _state["registered"] = True
        os.register_at_fork(after_in_child=_renew_lock)


def _renew_lock() -> None:
    # The pipeline thread may hold it at the fork, and nobody in the child would release it.
    import pynvml

    if hasattr(pynvml, "libLoadLock"):
        pynvml.libLoadLock = threading.Lock()
