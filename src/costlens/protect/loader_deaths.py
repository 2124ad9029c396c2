"""Keeps the death of loader workers from breaking into a training that is about to save and leave.

A scheduler signals every process of a job, loader workers too. torch tells of a dead worker by an
exception out of a handler, in the middle of whatever the main thread does; the step under way needs
no worker any more.
"""

from __future__ import annotations

import signal
import threading

from costlens.protect.signals import Disposition

__all__ = ["LoaderDeaths"]

_TORCH = "torch.utils.data._utils.signal_handling"


class LoaderDeaths:
    """The handler of torch's loaders, taken out for a while; main thread."""

    def __init__(self) -> None:
        self._found: Disposition = None

    def hush(self) -> None:
        """Take it out, if it is installed; also inside a signal handler."""
        found = signal.getsignal(signal.SIGCHLD)
        if getattr(found, "__module__", None) == _TORCH:
            self._found = found
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def restore(self) -> None:
        """Put it back where nobody has installed another one; torch itself never would."""
        found, self._found = self._found, None
        if found is None or threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL:
            signal.signal(signal.SIGCHLD, found)
