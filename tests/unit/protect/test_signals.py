"""Handlers are put in, called, given back and left alone; what kills is tested in tests/exits."""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from costlens.core import log
from costlens.protect import signals

NAMES = ("SIGUSR1", "SIGUSR2")
USR1, USR2 = signal.SIGUSR1, signal.SIGUSR2


class Run:
    """Something to end that notes what it is told."""

    def __init__(self) -> None:
        self.noted: list[str] = []
        self.end_timeout_s = 1.0
        self.is_ended = True
        self.is_saving = False
        self.heard: list[str] = []

    def hear_signal(self, name: str) -> None:
        self.heard.append(name)

    def note_signal(self, name: str) -> None:
        self.noted.append(name)

    def begin_end(self) -> None:
        raise AssertionError("nothing dies in these tests")


@pytest.fixture(autouse=True)
def _dispositions() -> Iterator[None]:
    """Put back what a test leaves behind, and demand that costlens left nothing."""
    before = {signum: signal.getsignal(signum) for signum in (USR1, USR2)}
    yield
    for signum, handler in before.items():
        signal.signal(signum, handler)
    assert signal.set_wakeup_fd(-1) == -1


def test_handlers_are_there_between_attach_and_detach() -> None:
    """And nowhere else; so is the thread that listens."""
    run = Run()
    signals.attach(run, NAMES)
    assert callable(signal.getsignal(USR1))
    assert "costlens-signals" in {thread.name for thread in threading.enumerate()}
    signals.detach(run)
    assert signal.getsignal(USR1) == signal.getsignal(USR2) == signal.SIG_DFL
    assert "costlens-signals" not in {thread.name for thread in threading.enumerate()}


def test_attaching_twice_is_once_and_detaching_a_stranger_nothing() -> None:
    """C112 in spirit: neither doubles a notice nor takes a handler away."""
    calls: list[int] = []
    signal.signal(USR1, lambda signum, frame: calls.append(signum))
    run = Run()
    signals.attach(run, NAMES)
    signals.attach(run, NAMES)
    signals.detach(Run())
    signal.raise_signal(USR1)
    assert (calls, run.noted) == ([USR1], ["SIGUSR1"])
    signals.detach(run)


def test_a_handler_from_before_is_called_once_for_all_runs_and_comes_back() -> None:
    """C063: two runs are told, the user's handler runs once, and is installed again after both."""
    calls: list[int] = []

    def mine(signum: int, frame: object) -> None:
        calls.append(signum)

    signal.signal(USR1, mine)
    first, second = Run(), Run()
    signals.attach(first, NAMES)
    signals.attach(second, NAMES)
    signal.raise_signal(USR1)
    assert (calls, first.noted, second.noted) == ([USR1], ["SIGUSR1"], ["SIGUSR1"])
    signals.detach(first)
    signal.raise_signal(USR1)
    assert (len(calls), len(first.noted), len(second.noted)) == (2, 1, 2)
    signals.detach(second)
    assert signal.getsignal(USR1) is mine


def test_what_a_handler_raises_reaches_the_loop() -> None:
    """It is the user's way out, and not ours to swallow."""

    def leave(signum: int, frame: object) -> None:
        raise KeyError("mine")

    signal.signal(USR1, leave)
    run = Run()
    signals.attach(run, NAMES)
    with pytest.raises(KeyError, match="mine"):
        signal.raise_signal(USR1)
    assert run.noted == ["SIGUSR1"]
    signals.detach(run)


def test_a_handler_that_replaces_ours_stays_and_decides() -> None:
    """C063 in the other order: called from theirs, ours notes the signal and kills nothing."""
    run = Run()
    signals.attach(run, NAMES)
    ours = signal.getsignal(USR1)
    assert callable(ours)

    def theirs(signum: int, frame: object) -> None:
        ours(signum, frame)  # type: ignore[arg-type]

    signal.signal(USR1, theirs)
    signal.raise_signal(USR1)
    assert run.noted == ["SIGUSR1"]
    signals.detach(run)
    assert signal.getsignal(USR1) is theirs
    signal.raise_signal(USR1)
    assert run.noted == ["SIGUSR1"]


def test_a_run_after_one_that_was_replaced_makes_no_circle() -> None:
    """Ours, theirs that calls ours, ours again: each runs once."""
    calls: list[str] = []
    first, second = Run(), Run()
    signals.attach(first, NAMES)
    ours = signal.getsignal(USR1)
    assert callable(ours)

    def theirs(signum: int, frame: object) -> None:
        calls.append("theirs")
        ours(signum, frame)  # type: ignore[arg-type]

    signal.signal(USR1, theirs)
    signals.detach(first)
    signals.attach(second, NAMES)
    signal.raise_signal(USR1)
    assert calls == ["theirs"]
    assert set(second.noted) == {"SIGUSR1"}
    signals.detach(second)
    assert signal.getsignal(USR1) is theirs


def test_an_ignored_signal_is_left_alone() -> None:
    """Nothing is installed where nothing would happen."""
    signal.signal(USR1, signal.SIG_IGN)
    run = Run()
    signals.attach(run, NAMES)
    signal.raise_signal(USR1)
    assert signal.getsignal(USR1) == signal.SIG_IGN
    assert run.noted == []
    signals.detach(run)


def test_a_handler_that_only_c_knows_is_left_alone(tmp_path: Path) -> None:
    """C063: Python says "default" of a signal that a C library handles; the kernel knows better."""
    with (tmp_path / "trace").open("w") as file:
        faulthandler.register(USR1, file)
        try:
            run = Run()
            signals.attach(run, NAMES)
            signal.raise_signal(USR1)
            signals.detach(run)
        finally:
            faulthandler.unregister(USR1)
    assert run.noted == []
    assert "most recent call first" in (tmp_path / "trace").read_text()


def test_unknown_signals_and_none_are_passed_over() -> None:
    """What this system does not have cannot be handled."""
    run = Run()
    signals.attach(run, ("SIGNONE",))
    signals.detach(run)
    signals.attach(run, ())
    assert signal.getsignal(USR1) == signal.SIG_DFL
    signals.detach(run)


def test_off_the_main_thread_one_notice_is_all(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """C066: no error, one line a process, no handler."""
    monkeypatch.setitem(signals._seen, "off_main", False)
    monkeypatch.setitem(log._state, "level", 20)
    runs = [Run(), Run()]
    for run in runs:
        thread = threading.Thread(target=signals.attach, args=(run, NAMES))
        thread.start()
        thread.join()
        assert signal.getsignal(USR1) == signal.SIG_DFL
    for run in runs:
        signals.detach(run)
    assert capsys.readouterr().err.count("costlens.signals.off") == 1


def test_a_run_ended_by_another_thread_leaves_a_handler_that_does_nothing() -> None:
    """Only the main thread can give handlers back; until it does, ours is as if it were not there.

    The next run takes it over instead of stacking another one on it.
    """
    calls: list[int] = []
    signal.signal(USR1, lambda signum, frame: calls.append(signum))
    first, second = Run(), Run()
    signals.attach(first, NAMES)
    left = signal.getsignal(USR1)
    thread = threading.Thread(target=signals.detach, args=(first,))
    thread.start()
    thread.join()
    signal.raise_signal(USR1)
    assert (calls, first.noted) == ([USR1], [])
    signals.attach(second, NAMES)
    assert signal.getsignal(USR1) is left
    signals.detach(second)
    assert signal.getsignal(USR1) is not left


def test_what_another_library_will_put_back_is_not_ours() -> None:
    """Lightning remembers the handlers it found; after the last run they are the user's again."""

    def mine(signum: int, frame: object) -> None:
        """Do nothing."""

    signal.signal(USR1, mine)
    run = Run()
    signals.attach(run, NAMES)
    found = {USR1: signal.getsignal(USR1), USR2: signal.getsignal(USR2), signal.SIGINT: None}
    signals.give_back(found)
    assert found[USR1] is not mine, "a run is still there"
    signals.detach(run)
    signals.give_back(found)
    assert found == {USR1: mine, USR2: signal.SIG_DFL, signal.SIGINT: None}


def test_a_forked_child_has_the_dispositions_of_before() -> None:
    """It is nobody's run: neither its signals nor its end are any of ours."""
    run = Run()
    signals.attach(run, NAMES)
    pid = os.fork()
    if pid == 0:
        is_clean = signal.getsignal(USR1) == signal.SIG_DFL
        is_clean = is_clean and signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
        os._exit(0 if is_clean and signal.set_wakeup_fd(-1) == -1 else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
    assert callable(signal.getsignal(USR1))
    signals.detach(run)


def test_a_child_that_is_terminated_at_birth_dies_of_it() -> None:
    """Python drops a signal that comes before the child has its dispositions back."""
    run = Run()
    signals.attach(run, NAMES)
    for _ in range(20):
        pid = os.fork()
        if pid == 0:
            signal.alarm(20)
            signal.pause()
            os._exit(0)
        os.kill(pid, USR1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -USR1
    assert run.noted == []
    signals.detach(run)
