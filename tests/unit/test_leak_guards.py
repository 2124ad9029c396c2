"""The guards of tests/conftest.py, seen from a test session of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


def _session(tmp_path: Path, test: str, **environ: str) -> str:
    """Return what pytest prints for one file with `test` under the project's conftest."""
    (tmp_path / "conftest.py").write_text((REPOSITORY / "tests/conftest.py").read_text())
    (tmp_path / "test_it.py").write_text(
        "import os, threading\nSTOP = threading.Event()\n\n"
        f"def test_it(request):\n    {test}\n\ndef test_after():\n    STOP.set()\n"
    )
    command = [sys.executable, "-m", "pytest", "-c", str(REPOSITORY / "pyproject.toml")]
    command += ["--rootdir", str(tmp_path), "-p", "no:randomly", "-p", "no:cacheprovider"]
    session = subprocess.run(
        [*command, str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | environ,
        timeout=60,
    )
    return session.stdout + session.stderr


@pytest.mark.parametrize(
    ("leak", "complaint"),
    [
        ("os.environ['LEFT'] = '1'", "changed the environment: ['LEFT']"),
        ("os.environ.pop('HOME')", "changed the environment: ['HOME']"),
        (
            "threading.Thread(target=STOP.wait, name='worker').start()",
            "left threads running: ['worker']",
        ),
        (
            "threading.Thread(target=STOP.wait, name='costlens-x', daemon=True).start()",
            "left threads running: ['costlens-x']",
        ),
    ],
)
def test_a_leak_fails_the_test_that_caused_it(tmp_path: Path, leak: str, complaint: str) -> None:
    """The leaking test errs and names what it left; its neighbour is not blamed."""
    printed = _session(tmp_path, leak)
    assert complaint in printed
    assert "2 passed, 1 error" in printed


def test_the_machines_settings_do_not_reach_a_test(tmp_path: Path) -> None:
    """COSTLENS_*, OTEL_* and PL_* of the shell are gone, but for the run folder in tmp_path."""
    test = (
        "ours = {k for k in os.environ if k.startswith(('COSTLENS_', 'OTEL_', 'PL_'))}\n"
        "    assert ours == {'COSTLENS_DIR'}\n"
        "    assert os.environ['COSTLENS_DIR'] != 'elsewhere'"
    )
    shell = {"COSTLENS_DIR": "elsewhere", "OTEL_SDK_DISABLED": "true", "PL_X": "1"}
    assert "2 passed" in _session(tmp_path, test, **shell)


def test_a_missing_part_is_skipped_unless_it_is_required(tmp_path: Path) -> None:
    """`require` skips with its reason, and fails where COSTLENS_REQUIRE names the part."""
    test = "request.getfixturevalue('require')('nvml', False, 'no driver')"
    assert "nvml: no driver" in _session(tmp_path, test)
    required = _session(tmp_path, test, COSTLENS_REQUIRE="ray, nvml")
    assert "COSTLENS_REQUIRE names nvml, but: no driver" in required
    assert "1 failed" in required


def test_an_unknown_part_is_refused(tmp_path: Path) -> None:
    """A misspelt part is an error in a test, and in COSTLENS_REQUIRE, where it would do nothing."""
    test = "request.getfixturevalue('require')('nvlm', True, '')"
    assert "unknown part 'nvlm'" in _session(tmp_path, test)
    assert "unknown parts ['nvlm']" in _session(tmp_path, "pass", COSTLENS_REQUIRE="nvlm")
