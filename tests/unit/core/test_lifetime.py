"""What happens to open runs at exit and in forked children."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from costlens.core import lifetime

HEAD = """
import os, sys, threading, time
from costlens.core import lifetime
from costlens.core.guard import faults

class Living:
    def __init__(self, name):
        self.name = name
        lifetime.register(self)
    def close_at_exit(self):
        os.write(1, f"close {self.name}\\n".encode())
    def silence(self):
        os.write(1, f"silence {self.name}\\n".encode())
"""


def launch(body: str) -> list[str]:
    """Run a script that must end well within ten seconds, and return its lines."""
    done = subprocess.run(
        [sys.executable, "-c", HEAD + textwrap.dedent(body)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={"PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_open_runs_are_closed_at_exit_even_when_nobody_holds_them() -> None:
    """A run whose object was dropped is closed; one that was unregistered is not."""
    lines = launch(
        """
        Living("a")
        lifetime.unregister(Living("b"))
        import gc; gc.collect()
        """
    )
    assert lines == ["close a"]


def test_one_run_that_fails_to_close_does_not_keep_the_others_open() -> None:
    """Every open run is closed, oldest first; the fault is said on standard error."""
    lines = launch(
        """
        Living("a")
        broken = Living("b"); broken.close_at_exit = lambda: 1 / 0
        Living("c")
        """
    )
    assert lines == ["close a", "close c"]


def test_a_forked_child_falls_silent_and_closes_nothing() -> None:
    """The child's copy is silenced at once; the parent's goes on and is closed by the parent."""
    lines = launch(
        """
        Living("a")
        pid = os.fork()
        if pid == 0:
            assert lifetime.live() == []
            sys.exit(0)
        os.waitpid(pid, 0)
        os.write(1, b"parent\\n")
        """
    )
    assert lines == ["silence a", "parent", "close a"]


def test_a_run_opened_in_a_forked_child_is_the_childs() -> None:
    """A child that starts a run of its own closes that one, as the first of its process."""
    lines = launch(
        """
        Living("a"); lifetime.claim_ordinal()
        pid = os.fork()
        if pid == 0:
            assert lifetime.claim_ordinal() == 0
            Living("b")
            sys.exit(0)
        os.waitpid(pid, 0)
        assert lifetime.claim_ordinal() == 1
        """
    )
    assert lines == ["silence a", "close b", "close a"]


def test_a_fork_while_a_fault_is_counted_does_not_lock_the_child() -> None:
    """The child's lock is new: another thread's half-done count cannot block it for ever."""
    lines = launch(
        """
        Living("a")
        faults._lock.acquire()
        pid = os.fork()
        if pid == 0:
            faults.call("child", lambda: 1 / 0)
            os.write(1, f"{faults.counts}\\n".encode())
            os._exit(0)
        deadline = time.monotonic() + 10
        while os.waitpid(pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > deadline:
                os.kill(pid, 9)
                sys.exit("the child hangs")
            time.sleep(0.01)
        faults._lock.release()
        """
    )
    assert lines == ["silence a", "{'child': 1}", "close a"]


def test_importing_registers_nothing() -> None:
    """Before the first run there is no exit hook and no fork hook."""
    lines = launch(
        """
        import atexit
        before = atexit._ncallbacks()
        import costlens.core.log, costlens.core.pipeline, costlens.core.snapshot_builder
        assert atexit._ncallbacks() == before
        assert threading.active_count() == 1
        os.write(1, b"nothing\\n")
        """
    )
    assert lines == ["nothing"]


class Quiet:
    """Something that is open and does nothing."""

    def close_at_exit(self) -> None:
        """Do nothing."""

    def silence(self) -> None:
        """Do nothing."""

    def __eq__(self, other: object) -> bool:
        """Look like any other."""
        return isinstance(other, Quiet)

    __hash__ = None  # type: ignore[assignment]


def test_registering_twice_is_registering_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are told apart by identity, even where they call themselves equal."""
    monkeypatch.setattr(lifetime, "_live", [])
    monkeypatch.setattr(lifetime, "_state", {"registered": True, "num_opened": 0})
    first, second = Quiet(), Quiet()
    for living in (first, second, first):
        lifetime.register(living)
    assert [id(living) for living in lifetime.live()] == [id(first), id(second)]
    lifetime.unregister(second)
    lifetime.unregister(second)
    assert [id(living) for living in lifetime.live()] == [id(first)]
