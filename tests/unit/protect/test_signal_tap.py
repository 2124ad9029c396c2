"""The tap on the wakeup descriptor: hears this process, believes nobody else."""

from __future__ import annotations

import os
import queue
import signal
import socket
import threading
from collections.abc import Iterator

import pytest

from costlens.protect.signal_tap import SignalTap, open_tap


class Heard(queue.Queue):
    """Keeps the SIGUSR1 that are heard; torch may have a handler for children that end."""

    def note(self, signum: int) -> None:
        if signum == signal.SIGUSR1:
            self.put(signum)


@pytest.fixture
def heard() -> Iterator[Heard]:
    """Return what is heard, while SIGUSR1 does nothing."""
    before = signal.signal(signal.SIGUSR1, lambda signum, frame: None)
    yield Heard()
    signal.signal(signal.SIGUSR1, before)
    assert signal.set_wakeup_fd(-1) == -1


def test_it_hears_a_signal_and_ends_when_it_is_closed(heard: Heard) -> None:
    """On its own thread, whatever the main thread does."""
    tap = open_tap(heard.note)
    assert isinstance(tap, SignalTap)
    signal.raise_signal(signal.SIGUSR1)
    assert heard.get(timeout=10) == signal.SIGUSR1
    tap.close()
    assert "costlens-signals" not in {thread.name for thread in threading.enumerate()}


def test_what_a_forked_child_writes_is_not_believed(heard: Heard) -> None:
    """A child inherits the descriptor: its signals must not look like ours."""
    tap = open_tap(heard.note)
    assert tap is not None
    pid = os.fork()
    if pid == 0:
        signal.raise_signal(signal.SIGUSR1)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    os.kill(os.getpid(), signal.SIGUSR1)
    assert heard.get(timeout=10) == signal.SIGUSR1
    tap.close()
    assert heard.empty(), "the child's signal was taken for ours"


def test_it_steps_aside_for_another_library(heard: Heard) -> None:
    """An event loop that hears signals already goes on hearing them."""
    reader, writer = socket.socketpair()
    with reader, writer:
        writer.setblocking(False)
        signal.set_wakeup_fd(writer.fileno())
        assert open_tap(heard.note) is None
        signal.raise_signal(signal.SIGUSR1)
        assert reader.recv(1) == bytes([signal.SIGUSR1])
        assert signal.set_wakeup_fd(-1) == writer.fileno()


def test_it_leaves_what_replaced_it(heard: Heard) -> None:
    """An event loop that came later keeps the descriptor when the tap closes."""
    tap = open_tap(heard.note)
    assert tap is not None
    reader, writer = socket.socketpair()
    with reader, writer:
        writer.setblocking(False)
        signal.set_wakeup_fd(writer.fileno())
        tap.close()
        assert signal.set_wakeup_fd(-1) == writer.fileno()


def test_without_room_for_a_thread_there_is_no_tap(
    heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training goes on with what the handlers alone can do; no descriptor is left behind."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert open_tap(heard.note) is None
    assert signal.set_wakeup_fd(-1) == -1


def test_a_system_without_credentials_has_no_tap(
    heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without knowing who wrote, nothing could be believed."""
    monkeypatch.delattr(socket, "SO_PASSCRED")
    assert open_tap(heard.note) is None
