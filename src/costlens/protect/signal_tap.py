"""Tells of a signal on a thread of its own, also while the main thread cannot run its handler.

Python runs a handler on the main thread only, between two instructions. A main thread that is stuck
in a collective would make the process deaf to a signal that used to end it; ``signals.py`` takes
over then.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import threading
from collections.abc import Callable

__all__ = ["SignalTap", "open_tap"]

# pid, uid and gid of whoever wrote, as the kernel tells them.
_CREDENTIALS = struct.Struct("3i")
_CLOSE = 0
_JOIN_S = 1.0


class SignalTap:
    """Hears every signal of this process that Python handles, through ``signal.set_wakeup_fd``.

    A forked child inherits that descriptor before it can let go of it, so only what the kernel
    says this process wrote is believed.

    Args:
        on_signal: Called with the number of each signal, on the tap's thread.
    """

    def __init__(self, on_signal: Callable[[int], None]) -> None:
        self._on_signal = on_signal
        self._pid = os.getpid()
        self._reader, self._writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._reader.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._writer.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="costlens-signals", daemon=True)

    def install(self) -> bool:
        """Return whether signals are heard; not where another library hears them; main thread."""
        try:
            self._thread.start()
        except RuntimeError:  # there are too many
            self._drop()
            return False
        before = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        if before != -1:
            signal.set_wakeup_fd(before)
            self._end()
        return before == -1

    def close(self) -> None:
        """Stop listening and end the thread; main thread."""
        self._uninstall()
        self._end()

    def abandon(self) -> None:
        """Let go of what a forked child inherited: the thread did not come along."""
        self._uninstall()
        self._drop()

    def _uninstall(self) -> None:
        seen = signal.set_wakeup_fd(-1)
        if seen not in {-1, self._writer.fileno()}:
            signal.set_wakeup_fd(seen)  # another library has replaced it since

    def _end(self) -> None:
        self._writer.send(bytes([_CLOSE]))
        self._thread.join(_JOIN_S)
        if not self._thread.is_alive():
            self._drop()

    def _drop(self) -> None:
        self._reader.close()
        self._writer.close()

    def _run(self) -> None:
        while (signum := self._receive()) != _CLOSE:
            self._on_signal(signum)

    def _receive(self) -> int:
        while True:
            data, messages, _, _ = self._reader.recvmsg(1, socket.CMSG_SPACE(_CREDENTIALS.size))
            if not data:
                return _CLOSE
            for level, kind, credentials in messages:
                is_told = level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS
                if is_told and _CREDENTIALS.unpack(credentials)[0] == self._pid:
                    return data[0]


def open_tap(on_signal: Callable[[int], None]) -> SignalTap | None:
    """Return a tap, or None where the system or another library leaves no room for one.

    Args:
        on_signal: Called with the number of each signal, on the tap's thread.
    """
    if not hasattr(socket, "SO_PASSCRED") or not hasattr(socket, "SCM_CREDENTIALS"):
        return None
    tap = SignalTap(on_signal)
    return tap if tap.install() else None
