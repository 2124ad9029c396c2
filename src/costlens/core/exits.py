"""How this process is about to exit, as far as Python lets anybody know before it is too late.

A ``SystemExit`` leaves no trace for what runs at exit, so ``sys.exit`` is listened to while a run
is open; an unhandled exception is in ``sys.last_value``. run.py asks when the interpreter ends.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

__all__ = ["exit_code_of", "hush", "listen"]

Listener = Callable[[object], None]

_listeners: list[Listener] = []
_installed: dict[str, Any] = {}


def listen(listener: Listener) -> None:
    """Call ``listener`` with the status of each ``sys.exit`` on the main thread; twice is once."""
    if listener not in _listeners:
        _listeners.append(listener)
    if "exit" not in _installed:
        _installed["original"] = sys.exit
        _installed["exit"] = sys.exit = _wrap(sys.exit)


def hush(listener: Listener) -> None:
    """Forget ``listener``; after the last one ``sys.exit`` is again what it was before."""
    if listener in _listeners:
        _listeners.remove(listener)
    if not _listeners and "exit" in _installed and sys.exit is _installed["exit"]:
        sys.exit = _installed["original"]
        _installed.clear()


def exit_code_of(error: BaseException) -> int | None:
    """Return the exit code that an unhandled exception causes; None where a signal follows.

    Args:
        error: A ``SystemExit``, or whatever ended the main thread.
    """
    if isinstance(error, KeyboardInterrupt):
        return None
    if not isinstance(error, SystemExit) or not isinstance(error.code, int | None):
        return 1
    return (error.code or 0) & 0xFF


def _wrap(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def leave(*status: object) -> None:
        if threading.current_thread() is threading.main_thread():
            for listener in _listeners.copy():
                listener(*status[:1] or (None,))
        original(*status)

    return leave
