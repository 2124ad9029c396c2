"""A writer is killed, wherever it is: the newest valid step never goes back, nothing else loads."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from costlens.protect.commit import folder_of
from costlens.protect.shelf import Shelf
from costlens.storage.store import Store
from tests.contract.places import SEEN_BY_ALL, Place
from tests.contract.saves import RUN, newest_step

pytestmark = pytest.mark.parametrize("place", SEEN_BY_ALL, indirect=True)
NUM_RANDOM_KILLS = 10


class Writers:
    """Writers of one place, started and killed one after the other.

    Args:
        url: The place.
    """

    def __init__(self, url: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.contract.job_saves", url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        self.durable = 0
        self._read_until("ready")

    def _read_until(self, start: str) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("durable "):
                self.durable = max(self.durable, int(line.split()[1]))
            if line.startswith(start):
                return line.strip()
        raise AssertionError(f"the writer ended before it said {start!r}")

    def start(self, step: int, stage: str = "none") -> int:
        """Let a writer save from a step on, and return its process id."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{step} {stage}\n")
        self.process.stdin.flush()
        return int(self._read_until("pid ").split()[1])

    def wait_for(self, what: str) -> None:
        """Wait until the writer says it."""
        self._read_until(what)

    def kill(self, pid: int) -> None:
        """Kill the writer and take in what it had said."""
        os.kill(pid, signal.SIGKILL)
        self._read_until("ended")

    def close(self) -> None:
        """End."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture(name="writers")
def _writers(url: str) -> Iterator[Writers]:
    writers = Writers(url)
    yield writers
    writers.close()


def check(url: str, least: int) -> int:
    """Return the newest step, loaded and compared, that no kill may have taken back or spoilt."""
    shelf = Shelf(Store(url), RUN)
    step = newest_step(shelf)
    assert step is not None
    assert step >= least
    assert shelf.rejections == []
    for name in shelf.names():
        shelf.verify(name)
    return step


def sweep(url: str) -> int:
    """Sweep as a day later; return how much went, after seeing that nothing else is left."""
    shelf = Shelf(Store(url), RUN)
    num_swept = shelf.sweep(time.time() + 25 * 3600)
    names = {str(name) for name in shelf.names()}
    assert {child.rstrip("/") for child in shelf.store.children(folder_of(RUN))} == names
    return num_swept


def test_a_kill_at_each_stage(writers: Writers, url: str, place: Place, tmp_path: Path) -> None:
    """C032: what was durable is the newest one; what was begun is invisible, and swept."""
    stages = ["snapshot", "data", "manifest", "retention"]
    if place.server is None:
        stages.append("fsync")  # a file is written and has no name yet
    step = 0
    for stage in stages:
        pid = writers.start(step + 1, stage)
        writers.wait_for(f"at {stage}")
        writers.kill(pid)
        # They stop in their third save; what retention removes has been committed before.
        step += 3 if stage == "retention" else 2
        assert writers.durable == step, stage
        assert check(url, step) == step, stage
        assert sweep(url) == (0 if stage == "snapshot" else 1), stage
        assert not [*tmp_path.rglob(".costlens-*")], stage
        assert check(url, step) == step, stage


@pytest.mark.slow
def test_kills_at_random(writers: Writers, url: str) -> None:
    """Ten writers, each killed at an instant of its own, each going on where the last one got."""
    chance, step = random.Random(url.partition(":")[0]), 0
    for _ in range(NUM_RANDOM_KILLS):
        pid = writers.start(step + 1)
        if chance.random() < 0.7:  # from the first save on; else while it still connects
            writers.wait_for("durable")
        time.sleep(chance.uniform(0, 0.15))
        writers.kill(pid)
        if writers.durable:
            step = check(url, max(step, writers.durable))
    assert step >= NUM_RANDOM_KILLS // 2
    sweep(url)
    assert check(url, step) == step
