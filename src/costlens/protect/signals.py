"""Signals that announce the end of a process: they close the record first and change nothing else.

``Run.open`` attaches a run, ``Run.finish`` detaches it; nothing is installed at import. Whoever had
a handler before is called and decides; where the signal would have killed the process, it still
does, after the runs have been ended within their deadline. A run that keeps checkpoints is only
told: it saves and ends the process itself (``preemption.py``).
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, MutableMapping
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from costlens.core.guard import faults
from costlens.core.log import log
from costlens.protect.signal_tap import SignalTap, open_tap

__all__ = [
    "Disposition",
    "Endable",
    "attach",
    "deliver",
    "detach",
    "end_process",
    "give_back",
    "is_deadly",
    "take_back",
]

Disposition = Callable[[int, FrameType | None], Any] | int | None
"""What ``signal.getsignal`` returns."""

_POLL_S = 0.01
# A main thread that has not come to its handler by then is stuck in foreign code.
_PATIENCE_S = 1.0
_STATUS = Path("/proc/self/status")


class Endable(Protocol):
    """Something that must be ended before the process dies of a signal.

    The methods are called inside a signal handler, which may have interrupted anything: they take
    no lock and write to no stream.
    """

    @property
    def end_timeout_s(self) -> float:
        """Return the most seconds to wait for the end."""

    @property
    def is_ended(self) -> bool:
        """Return whether everything is written and flushed."""

    @property
    def is_saving(self) -> bool:
        """Return whether the training knows of the signal, saves, and ends the process itself."""

    def hear_signal(self, name: str) -> None:
        """Learn of a signal before its handler has run; on another thread."""

    def note_signal(self, name: str) -> None:
        """Remember that a signal, such as ``SIGTERM``, has asked for the end."""

    def begin_end(self) -> None:
        """Begin to end, without waiting for it."""


class _Handler:
    """What is installed for one signal.

    Args:
        previous: What was installed before: a callable, or ``SIG_DFL``.
    """

    def __init__(self, previous: Disposition) -> None:
        self.previous = previous

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        _desk.note(signum)
        if callable(self.previous):
            self.previous(signum, frame)
        # Where somebody has replaced this handler and calls it, they decide how the process ends.
        elif _is_installed(signum, self) and not _desk.spares():
            _desk.die(signum)


class _Desk:
    """The handlers and runs of this process."""

    def __init__(self) -> None:
        self.runs: list[Endable] = []
        # Forks are heard of from the first run on; one before it may have made this process.
        self._pid = 0
        self._handlers: dict[int, _Handler] = {}
        self._tap: SignalTap | None = None
        self._is_dying = False
        self._has_spared = False

    def spares(self) -> bool:
        """Return whether a signal that would kill the process does not, at least not yet."""
        if any(run.is_saving for run in self.runs):
            self._has_spared = True
            return True
        # The kernel spares process 1 of a container the default disposition, and so must this,
        # unless a training was told of the end and did not come to it.
        return os.getpid() == 1 and not self._has_spared

    def is_deadly(self, signum: int) -> bool:
        """Return whether the process is to die of a signal: nobody else handles it."""
        handler = self._handlers.get(signum)
        if handler is None or callable(handler.previous):
            return False
        return _is_installed(signum, handler)

    @property
    def signums(self) -> frozenset[int]:
        """Return the signals with a handler of ours."""
        return frozenset(self._handlers)

    def add(self, run: Endable) -> None:
        """Take in a run, once."""
        self._pid = os.getpid()
        if not any(known is run for known in self.runs):
            self.runs.append(run)

    def install(self, signums: Iterable[int]) -> None:
        """Install handlers where there are none of ours yet; main thread."""
        for signum in signums:
            seen = signal.getsignal(signum)
            if isinstance(seen, _Handler):
                self._handlers[signum] = seen
            elif callable(seen) or (seen == signal.SIG_DFL and not _is_caught_in_c(signum)):
                handler = _Handler(seen)
                self._handlers[signum] = handler
                signal.signal(signum, handler)
        deadly = [handler for handler in self._handlers.values() if not callable(handler.previous)]
        if self._tap is None and deadly and self._pid != 1:
            self._tap = open_tap(self._watch_over)

    def take_back(self, replaces: Callable[[Disposition], bool]) -> None:
        """Install ours again over handlers that are not the user's; main thread."""
        for signum, handler in self._handlers.items():
            if replaces(signal.getsignal(signum)):
                signal.signal(signum, handler)

    def restore(self) -> None:
        """Put back what was installed before, except where ours was replaced; main thread."""
        for signum, handler in self._handlers.items():
            if _is_installed(signum, handler):
                signal.signal(signum, handler.previous)
        self._handlers.clear()
        self._has_spared = False
        if self._tap is not None:
            tap, self._tap = self._tap, None
            tap.close()

    def forget(self) -> None:
        """Undo everything in a forked child, which is nobody's run."""
        tap, self._tap = self._tap, None
        if tap is not None:
            tap.abandon()
        self.runs.clear()
        self.restore()

    def note(self, signum: int) -> None:
        """Tell the runs of a signal."""
        if os.getpid() == self._pid:
            for run in self.runs:
                run.note_signal(signal.Signals(signum).name)

    def die(self, signum: int) -> None:
        """End the runs and the process; a second signal meanwhile ends it at once; main thread."""
        try:
            if not self._is_dying and os.getpid() == self._pid:
                self._is_dying = True
                self._end_runs()
        finally:
            signal.signal(signum, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signum})
            signal.raise_signal(signum)
            os._exit(128 + signum)  # process 1, which the kernel spares

    def die_off_main(self, signum: int) -> None:
        """End the runs and the process while the main thread cannot; any other thread."""
        if not self._is_dying:
            self._is_dying = True
            self._end_runs()
        _die_off_main(signum)

    def _end_runs(self) -> None:
        runs = self.runs.copy()
        for run in runs:
            faults.call("protect.end", run.begin_end)
        deadline_s = time.monotonic() + max((run.end_timeout_s for run in runs), default=0.0)
        while not all(run.is_ended for run in runs) and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)

    def _watch_over(self, signum: int) -> None:
        handler = self._handlers.get(signum)
        if handler is None or callable(handler.previous) or not _is_installed(signum, handler):
            return
        for run in self.runs:
            run.hear_signal(signal.Signals(signum).name)
        if self.spares():
            return
        deadline_s = time.monotonic() + _PATIENCE_S
        while not self._is_dying:
            if not _is_installed(signum, handler):
                return
            if time.monotonic() >= deadline_s:
                self.note(signum)
                self.die_off_main(signum)
                return
            time.sleep(_POLL_S)


_desk = _Desk()
_seen = {"fork": False, "off_main": False}
_forking = threading.local()


def attach(run: Endable, names: Iterable[str]) -> None:
    """End ``run`` before the process dies of one of these signals; twice is once.

    Handlers can be installed on the main thread only; elsewhere one notice says so. Costs about
    0.2 ms and, where a signal would have killed the process, a thread that sleeps.

    Args:
        run: What to end.
        names: Signals, such as ``SIGTERM``; those the system does not have are passed over.
    """
    if not _seen["fork"]:
        _seen["fork"] = True
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=_hold_signals,
                after_in_parent=_release_signals,
                after_in_child=_forget_in_child,
            )
    _desk.add(run)
    signums = [getattr(signal, name) for name in names if hasattr(signal, name)]
    if _is_main_thread():
        _desk.install(signums)
    elif signums and not _desk.signums and not _seen["off_main"]:
        _seen["off_main"] = True
        log.info(
            "costlens.signals.off",
            message="the run was opened off the main thread, where no signal can be handled: a"
            " signal that kills the process leaves the record to be closed by its readers",
        )


def detach(run: Endable) -> None:
    """Forget ``run``; after the last one the handlers from before are back, on the main thread."""
    _desk.runs[:] = [known for known in _desk.runs if known is not run]
    if not _desk.runs and _is_main_thread():
        _desk.restore()


def is_deadly(name: str) -> bool:
    """Return whether the process is to die of a signal, as nobody else handles it."""
    return _desk.is_deadly(signal.Signals[name])


def deliver(name: str) -> None:
    """Let a signal that a run was spared for have its effect after all; main thread."""
    signum = signal.Signals[name]
    if _desk.is_deadly(signum):
        if not _desk.spares():
            _desk.die(signum)
    elif signal.getsignal(signum) == signal.SIG_DFL:
        signal.raise_signal(signum)


def end_process(name: str) -> None:
    """End the runs and let the process die of a signal, if it is to; any but the main thread."""
    signum = signal.Signals[name]
    if _desk.is_deadly(signum):
        _desk.die_off_main(signum)


def take_back(replaces: Callable[[Disposition], bool]) -> None:
    """Install our handlers again where a framework has put its own over them; main thread.

    Args:
        replaces: Whether a handler is one of the framework's; those of users stay.
    """
    if _desk.runs and _is_main_thread():
        _desk.take_back(replaces)


def give_back(found: MutableMapping[int, Disposition]) -> None:
    """Replace our handlers in what another library is about to put back, unless a run is attached.

    Args:
        found: Handlers by signal, as that library found them.
    """
    if not _desk.runs:
        for signum, handler in found.items():
            if isinstance(handler, _Handler):
                found[signum] = handler.previous


def _is_installed(signum: int, handler: _Handler) -> bool:
    return signal.getsignal(signum) is handler


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


# A signal that reaches a child before it has its own dispositions back would be lost, and a parent
# that terminates a child it has just started would wait for ever.
def _hold_signals() -> None:
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _desk.signums)


def _release_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _forget_in_child() -> None:
    faults.call("protect.fork", _desk.forget)
    _release_signals()


def _is_caught_in_c(signum: int) -> bool:
    # Python does not know of handlers that a C library has installed (faulthandler, MPI, absl).
    try:
        status = _STATUS.read_text(encoding="ascii", errors="replace")
        caught = int(status.partition("SigCgt:")[2].split(maxsplit=1)[0], 16)
    except (OSError, ValueError, IndexError):
        return False
    return bool(caught >> (signum - 1) & 1)


def _die_off_main(signum: int) -> None:
    # `signal.signal` belongs to the main thread, which is stuck.
    set_handler = ctypes.CDLL(None).signal
    set_handler.argtypes, set_handler.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
    set_handler(signum, None)
    os.kill(os.getpid(), signum)
    if os.getpid() == 1:
        os._exit(128 + signum)  # the kernel spares it
