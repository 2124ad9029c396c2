"""``costlens demo``, killed at ten random steps, ends with the weights of one that was not."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from costlens.core.records import RankRecord

STEPS = 300
KILLS = 10
WINDOW_S = 0.1
TOLERATED_S = 0.4
LIMIT_S = 300.0
# A busy machine is late: a step or a write may take twice as long as it did so far, and now and
# then a disk stands still for seconds. Most kills must keep to what was told; tests with fake
# clocks prove the rest.
LATE = 1.5
SLACK_S = 0.4


class Demo:
    """Launches of the demo with one place for checkpoints."""

    def __init__(self, place: Path, *options: str) -> None:
        self.place = place
        self._command = [sys.executable, "-m", "costlens", "demo", "--max-steps", str(STEPS)]
        self._command += [*options, "--json"]

    def start(self) -> subprocess.Popen[str]:
        """Start a launch; it finds by itself where to go on."""
        environ = {k: v for k, v in os.environ.items() if not k.startswith("COSTLENS_")}
        environ |= {
            "COSTLENS_CHECKPOINT_URL": str(self.place),
            "COSTLENS_MAX_LOSS": f"{TOLERATED_S}s",
            "COSTLENS_WINDOW_S": str(WINDOW_S),
            "OMP_NUM_THREADS": "1",
        }
        pipe = subprocess.PIPE
        return subprocess.Popen(self._command, env=environ, stdout=pipe, stderr=pipe, text=True)

    def finish(self) -> tuple[dict[str, Any], str]:
        """Return what a launch prints that nobody kills, and what it says meanwhile."""
        launch = self.start()
        out, err = launch.communicate(timeout=LIMIT_S)
        assert launch.returncode == 0, err
        return json.loads(out), err

    def kill_after(self, attempt: int, num_steps: int) -> None:
        """Start a launch and kill it once its record tells of so many steps."""
        with self.start() as launch:
            until_s = time.monotonic() + LIMIT_S
            while self.steps_of(attempt) < num_steps:
                assert launch.poll() is None, launch.stderr and launch.stderr.read()
                assert time.monotonic() < until_s
                time.sleep(0.05)
            launch.send_signal(signal.SIGKILL)

    def steps_of(self, attempt: int) -> int:
        """Return the optimizer steps of an attempt, as far as they are told."""
        for path in self.place.glob(f".costlens/*/record-{attempt}-0.json"):
            return json.loads(path.read_bytes())["progress"].get("optimizer_steps") or 0
        return 0

    def records(self) -> dict[int, RankRecord]:
        """Return the record of each attempt."""
        paths = self.place.glob(".costlens/*/record-*-0.json")
        records = [RankRecord.model_validate_json(path.read_bytes()) for path in paths]
        return {record.attempt.number: record for record in records}


def lost_s(record: RankRecord) -> float:
    """Return the seconds of work that an attempt had not saved when its record was last written."""
    attempt, saved = record.attempt, record.checkpoints
    assert saved is not None
    first_step_s = attempt.start_time + (record.startup.first_step_s or 0.0)
    last_s = saved.last_time if saved.num_saved and saved.last_time else first_step_s
    return attempt.heartbeat_time - last_s


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("options", [(), ("--plain",)], ids=["lightning", "plain"])
def test_ten_kills_change_no_bit_of_the_demo(tmp_path: Path, options: tuple[str, ...]) -> None:
    """It goes on by itself, says where, and re-does no more than its report allows."""
    calm, _ = Demo(tmp_path / "calm", *options).finish()
    choice, demo = random.Random(26), Demo(tmp_path / "rough", *options)
    after = [choice.randint(8, 44) for _ in range(KILLS)]
    assert sum(after) < STEPS - 15, "none of them comes to its end"
    for attempt, num_steps in enumerate(after, start=1):
        demo.kill_after(attempt, num_steps)
    rough, said = demo.finish()
    assert rough["weights_digest"] == calm["weights_digest"]
    assert rough["final_loss"] == calm["final_loss"]
    assert len(rough["attempts"]) == KILLS + 1
    resumed = rough["checkpoints"]["resumed_step"]
    assert resumed > 0
    assert f"resumed at step {resumed}" in said
    check_losses(demo.records())


def check_losses(records: dict[int, RankRecord]) -> None:
    """Check that each attempt went on from a save of the one before, and that most lost little."""
    late_s = []
    for before, after in itertools.pairwise(records[number] for number in sorted(records)):
        assert before.checkpoints is not None
        assert after.attempt.start_step is not None
        saved_step = before.checkpoints.last_step or 0
        assert after.attempt.start_step >= saved_step, "a newer one may have become durable since"
        told = before.checkpoints.interval
        if told is not None:
            assert told.is_loss_kept is (told.worst_loss_s <= TOLERATED_S * (1 + 1e-9))
            late_s.append(lost_s(before) - LATE * told.worst_loss_s)
    assert late_s, "no attempt ever told what a failure would cost"
    assert statistics.median(late_s) <= SLACK_S, late_s
