"""A loop that blocks for real, in a process of its own: told, recorded, shown, and over again."""

from __future__ import annotations

import subprocess
import sys

from tests.exits.script import Script, read_record, wait_ready, wait_until

BLOCKED = """
from costlens.core import stall
stall.LIMITS = stall.StallLimits(floor_s=2.0)
import costlens
run = costlens.start("blocked")
for _ in range(30):
    with run.iteration():
        time.sleep(0.005)
def wait_for_a_batch():
    print("READY", flush=True)
    sys.stdin.readline()
with run.phase("data_wait"):
    wait_for_a_batch()
for _ in range(300):
    with run.iteration():
        time.sleep(0.005)
ending()
run.finish()
"""


def _report(script: Script, *options: str) -> str:
    command = [sys.executable, "-m", "costlens", "report", "latest", *options]
    done = subprocess.run(
        command, env=script.environ, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


def test_a_blocked_loop_is_seen_from_outside_and_recovers(script: Script) -> None:
    """The log says where it stands, `costlens report` of the live run, too; then it moves on."""
    process = script.start(BLOCKED, COSTLENS_WINDOW_S="0.5", stdin=subprocess.PIPE)
    lines = wait_ready(process)
    wait_until(lambda: read_record(script.runs).stall)
    page = _report(script)
    assert "rank 0 has not moved in data_wait for" in page
    assert "wait_for_a_batch" in page
    watching = subprocess.Popen(
        [sys.executable, "-m", "costlens", "report", "latest", "--watch"],
        env=script.environ,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert watching.stdout is not None
    assert "blocked  running" in watching.stdout.readline()
    process.stdin.write("go on\n")
    process.stdin.flush()
    ended = script.wait(process, None, lines)
    shown, _ = watching.communicate(timeout=60)
    assert watching.returncode == 0
    assert "blocked  completed" in shown
    assert ended.code == 0, ended.err
    told = [seen for seen in ended.events("costlens.stalled") if seen["phase"] == "data_wait"]
    assert any(place.endswith("wait_for_a_batch") for place in told[0]["stack"])
    over = [seen for seen in ended.events("costlens.recovered") if seen["phase"] == "data_wait"]
    assert len(over) == 1
    assert over[0]["age_s"] >= told[0]["age_s"] >= 2.0
    assert ended.record.stall is None
    assert ended.record.progress.iterations == 330
