"""Whether the process of a record still lives, as a reader on its machine can tell."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from costlens.observe import process
from costlens.observe.process import is_alive, pid_space, start_ticks

HERE = os.getpid()


@pytest.fixture
def ticks() -> int:
    """Return the start of this process."""
    ticks = start_ticks()
    assert ticks is not None
    return ticks


def test_this_process_lives_and_one_that_began_otherwise_does_not(ticks: int) -> None:
    """A pid is given again after a while; the start tells the processes apart."""
    assert is_alive(HERE, ticks)
    assert not is_alive(HERE, ticks + 1)


def test_a_process_that_has_ended_is_gone_even_before_anybody_notices() -> None:
    """A zombie is in the table until its parent asks: it does not train any more."""
    script = "from costlens.observe.process import start_ticks; print(start_ticks())"
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    ticks = int(child.stdout.read())
    child.stdout.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert Path(f"/proc/{child.pid}/stat").read_text().split()[2] == "Z"
    assert not is_alive(child.pid, ticks)
    child.wait()
    assert not is_alive(child.pid, ticks)


def test_what_cannot_be_seen_may_live(monkeypatch: pytest.MonkeyPatch, ticks: int) -> None:
    """Where /proc hides the processes of others only their number is known to exist."""

    def deny(*_: object) -> None:
        raise PermissionError

    def hide(*_: object) -> list[str]:
        raise FileNotFoundError

    monkeypatch.setattr(os, "kill", deny)
    monkeypatch.setattr(process, "_read_stat", hide)
    assert is_alive(HERE, ticks)


def test_the_space_of_a_pid_is_this_boot_and_namespace(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Another boot or another container has other processes; neither is named in clear."""
    here = pid_space()
    assert here == pid_space()
    assert here is not None
    assert len(here) == 16
    boot = tmp_path / "boot_id"
    boot.write_text("another\n")
    monkeypatch.setattr(process, "_BOOT", boot)
    assert pid_space() not in {None, here}
    monkeypatch.setattr(process, "_BOOT", tmp_path / "none")
    assert pid_space() is None


def test_a_number_that_no_process_can_have_is_nobody() -> None:
    """A record may hold any number; asking the system about it raises nothing."""
    assert not is_alive(2**70, 5)
