"""Two ranks of a Lightning fit save at one step, and go on from it together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from costlens.protect.manifest import Manifest
from tests.distributed.launching import HERE, LIMIT_S, TORCHRUN, Launcher

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

NUM_STEPS = 600
NUM_LEFT = 15


def start(launch: Launcher, folder: Path, port: str) -> subprocess.Popen[str]:
    """Start both ranks; what they leave goes to ``folder``."""
    folder.mkdir(exist_ok=True)
    script = str(HERE / "job_lightning_checkpoints.py")
    command = [sys.executable, *TORCHRUN, port, script, "ddp", str(NUM_STEPS), str(folder)]
    own = {
        "COSTLENS_CHECKPOINT_URL": str(folder / "checkpoints"),
        "COSTLENS_MAX_LOSS": "1s",
        "PYTHONPATH": os.pathsep.join((str(HERE.parents[1]), os.environ.get("PYTHONPATH", ""))),
    }
    environ = {name: text for name, text in launch.environ.items() if name != "COSTLENS_DIR"}
    return subprocess.Popen(
        command,
        env=environ | own,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(launch: Launcher, folder: Path, port: str, kill: tuple[int, str] | None = None) -> int:
    """Return the step from which the ranks went on, all of them the same.

    Args:
        launch: Makes the environment.
        folder: Where checkpoints and digests go.
        port: Where the ranks meet.
        kill: The rank to be killed, and what is told some steps before.
    """
    job = start(launch, folder, port)
    assert job.stdout is not None
    pids, resumed, lines, num_left = {}, set(), [], NUM_LEFT
    is_told = False
    with job.stdout:
        for line in job.stdout:
            lines.append(line)
            word, *numbers = line.split()[:3] or [""]
            if word == "PID":
                pids[int(numbers[0])] = int(numbers[1])
            elif word == "RESUMED":
                resumed.add(int(numbers[1]))
            elif word == "STEP" and is_told and kill is not None and int(numbers[0]) == kill[0]:
                num_left -= 1
                if num_left == 0:
                    os.kill(pids[kill[0]], signal.SIGKILL)
            is_told = is_told or (kill is not None and kill[1] in line)
    assert (job.wait(LIMIT_S) == 0) is (kill is None), "".join(lines[-40:])
    (step,) = resumed
    return step


def test_killed_ranks_go_on_together(launch: Launcher, tmp_path: Path, port: str) -> None:
    """One rank is killed after a save, then the other before one: every bit ends as without."""
    assert run(launch, tmp_path / "calm", port) == 0
    rough = tmp_path / "rough"
    assert run(launch, rough, port, kill=(1, "costlens.checkpoint.saved")) == 0
    saved = run(launch, rough, port, kill=(0, "RESUMED"))
    assert 0 < saved < NUM_STEPS
    assert run(launch, rough, port) == saved
    for rank in (0, 1):
        ends = [(each / f"digest-{rank}").read_text() for each in (tmp_path / "calm", rough)]
        assert ends[0] == ends[1], f"rank {rank}"
        assert ends[0].startswith(f"{NUM_STEPS} ")
    manifests = [
        Manifest.parse(path.read_bytes())
        for path in (rough / "checkpoints").glob("*/manifests/*.json")
    ]
    assert all(len(manifest.shards) == 2 for manifest in manifests)
    assert max(manifest.step for manifest in manifests) == NUM_STEPS
