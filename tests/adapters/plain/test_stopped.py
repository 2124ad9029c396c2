"""A job that the scheduler stops and continues goes on paying, and says so."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest


def stop_once() -> dict:
    """Return the record of a loop that was stopped for a second."""
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("stopped_loop.py"))],
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout.readline() == "middle\n"
        time.sleep(0.02)
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(1.0)
        os.kill(process.pid, signal.SIGCONT)
        record = json.loads(process.stdout.read())
    assert process.returncode == 0
    return record


@pytest.mark.timing
def test_a_stopped_process_shows_one_outlier():
    """C011: SIGSTOP for 1 s in the middle of 20 steps of 50 ms.

    Wall and paid time hold the second, the median step stays, the stall is one step, and the
    phases add up to the wall time. That the process stood still is a fact of the record.
    """
    # The thread that notices a stop does so from its sleep; now and then it meets the stop awake.
    records = [stop_once()]
    while records[-1]["stopped_s"] == 0 and len(records) < 4:
        records.append(stop_once())
    record = records[-1]
    iterations = record["iteration_time"]
    loop_s = iterations["sum_ns"] / 1e9
    assert iterations["count"] == 19
    # Times grow on a busy machine, so the shape is judged: one iteration of more than 20 medians.
    median_s = iterations["median_s"]
    assert 0.05 <= median_s < 0.2
    assert loop_s >= 19 * 0.05 + 0.9
    slow = sum(
        count
        for low, count in zip([0, *iterations["bounds_s"]], iterations["buckets"], strict=True)
        if low >= 0.5
    )
    assert slow == 1
    assert sum(record["time_ns"].values()) == record["total_ns"]
    assert 0.5 <= record["stopped_s"] < 2.0
    attempt = record["attempt"]
    wall_s = attempt["end_time"] - attempt["start_time"]
    assert record["total_ns"] / 1e9 == pytest.approx(wall_s, rel=0.02)
