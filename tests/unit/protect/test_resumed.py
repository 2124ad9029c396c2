"""A run that was stopped and resumed in a new process is the run that was not, to the bit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("resumed.py")
sys.path.insert(0, str(SCRIPT.parent))
try:
    from resumed import MATRIX
finally:
    sys.path.remove(str(SCRIPT.parent))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """Return what the runs without a break printed, and what those resumed in a new process did."""
    folder = tmp_path_factory.mktemp("states")
    printed = []
    for action in ("save", "resume"):
        done = subprocess.run(
            [sys.executable, SCRIPT, action, folder],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        printed.append(json.loads(done.stdout))
    return printed[0], printed[1]


@pytest.mark.parametrize("row", [configuration.name for configuration in MATRIX])
def test_resumed_run_is_the_run_without_a_break(runs: tuple[Any, Any], row: str) -> None:
    """Dropout, accumulation, workers: every later loss, the next pass and the weights are equal."""
    whole, resumed = runs[0][row], runs[1][row]
    assert resumed["losses"] == whole["losses"][whole["num_losses"] :]
    assert len(resumed["losses"]) >= 6, "the pass that follows is part of it"
    assert resumed["weights"] == whole["weights"]
    assert resumed["step"] == whole["step"]
    assert resumed["inexact"] == whole["inexact"] == resumed["late"] == []
