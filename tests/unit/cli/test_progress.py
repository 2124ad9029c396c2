"""The bar of what takes longer than a second."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading

import pytest

from costlens.cli.progress import progress, track

SCRIPT = """
import sys, time
from costlens.cli import progress
progress.SHOW_AFTER_S = {after_s}
with progress.progress("reading runs", 3) as advance:
    for _ in range(3):
        print("a line of the result")
        time.sleep(0.15)
        advance()
"""


def run_on_terminal(after_s: float) -> tuple[str, str]:
    """Return what stands on standard output, a pipe, and on standard error, a terminal."""
    terminal, slave = pty.openpty()
    env = {**os.environ, "TERM": "xterm"}
    child = subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(after_s=after_s)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=slave,
        env=env,
    )
    os.close(slave)
    seen: list[bytes] = []

    def read() -> None:
        try:
            while data := os.read(terminal, 65536):
                seen.append(data)
        except OSError:  # a terminal without a process
            pass

    reader = threading.Thread(target=read)
    reader.start()
    out = child.communicate(timeout=60)[0]
    reader.join(10)
    os.close(terminal)
    assert child.returncode == 0, b"".join(seen)
    return out.decode(), b"".join(seen).decode(errors="replace")


def test_a_bar_is_shown_on_stderr_and_the_output_stays_whole() -> None:
    """It comes once the work takes long; standard output holds the result and nothing else."""
    out, err = run_on_terminal(after_s=0.05)
    assert out == "a line of the result\n" * 3
    assert "reading runs" in err


def test_what_is_quick_shows_nothing() -> None:
    """Nobody sees a bar flash up."""
    out, err = run_on_terminal(after_s=30.0)
    assert out == "a line of the result\n" * 3
    assert err == ""


def test_without_a_terminal_nothing_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    """Scripts and logs get no escape codes, and all items."""
    with progress("reading") as advance:
        advance()
    assert [*track([1, 2, 3], "counting")] == [1, 2, 3]
    assert capsys.readouterr() == ("", "")
