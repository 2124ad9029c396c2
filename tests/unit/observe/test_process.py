"""What the operating system knows about this process."""

from __future__ import annotations

import subprocess
import sys
import time
import types
from pathlib import Path

import psutil
import pytest

from costlens.core.clock import NS_PER_S
from costlens.observe import process
from costlens.observe.process import is_interactive, process_age_ns


def test_the_age_of_a_process_is_counted_from_its_start() -> None:
    """A child that slept is older than its sleep and younger than its launch."""
    before_ns = time.perf_counter_ns()
    script = (
        "import time; time.sleep(0.3)\n"
        "from costlens.observe.process import process_age_ns; print(process_age_ns())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    elapsed_ns = time.perf_counter_ns() - before_ns
    tick_ns = 20_000_000
    assert 300_000_000 - tick_ns <= int(done.stdout) <= elapsed_ns + tick_ns


def test_a_strange_command_name_does_not_confuse_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blanks and parentheses in the command's name are no field separators."""
    stat = Path("/proc/self/stat").read_text(encoding="utf-8")
    command = stat[stat.index("(") : stat.rindex(")") + 1]
    strange = tmp_path / "stat"
    strange.write_text(stat.replace(command, "(a b) (c)"), encoding="utf-8")
    expected_ns = process_age_ns()
    monkeypatch.setattr(process, "_STAT", strange)
    assert process_age_ns() == pytest.approx(expected_ns, abs=NS_PER_S)


def test_a_sandbox_that_does_not_tell_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start at time 0 would make the process as old as the machine: the age is unknown."""
    fake = tmp_path / "stat"
    fake.write_text("1 (python) S " + " ".join(["0"] * 40), encoding="utf-8")
    monkeypatch.setattr(process, "_STAT", fake)
    assert process_age_ns() is None


def test_without_proc_the_creation_time_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere the age comes from psutil; where that fails, too, it is unknown."""
    monkeypatch.setattr(process, "_STAT", tmp_path / "missing")
    monkeypatch.setattr(psutil.Process, "create_time", lambda _self: time.time() - 5)
    assert process_age_ns() == pytest.approx(5 * NS_PER_S, rel=0.2)

    def refuse(_self: psutil.Process) -> float:
        raise psutil.AccessDenied

    monkeypatch.setattr(psutil.Process, "create_time", refuse)
    assert process_age_ns() is None


def test_a_script_is_not_interactive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither is one that merely has IPython installed, or is importing it."""
    monkeypatch.delattr(sys, "ps1", raising=False)
    ipython = types.ModuleType("IPython")
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    assert not is_interactive()
    ipython.get_ipython = lambda: None  # type: ignore[attr-defined]
    assert not is_interactive()


def test_a_notebook_and_a_prompt_are_interactive(monkeypatch: pytest.MonkeyPatch) -> None:
    """There the process is far older than the run."""
    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: "a shell"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    assert is_interactive()
    monkeypatch.delitem(sys.modules, "IPython")
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    assert is_interactive()
