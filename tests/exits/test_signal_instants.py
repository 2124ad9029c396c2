"""SIGTERM at any instant: in the timeline, between iterations, in the middle of ``finish``."""

from __future__ import annotations

import pytest

from costlens.core.records import RankRecord
from tests.exits.script import Script

CHILDREN = """
import random
import costlens, costlens.run
spread = random.Random(7)
codes = []
for number in range(30):
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        run = costlens.start(f"child-{number}")
        os.write(writing, b"x")
        BODY
        os._exit(0)
    os.read(reading, 1)
    time.sleep(spread.uniform(0, 0.03))
    os.kill(pid, signal.SIGTERM)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print("CODES", *codes)
"""
LOOP = """
        while True:
            with run.iteration(samples=1), run.phase("forward"), run.phase("validation"):
                pass
"""
FINISHING = """
        for _ in range(300):
            with run.iteration(samples=1):
                pass
        run.finish()
        time.sleep(20)
"""


@pytest.mark.parametrize(
    ("body", "outcomes"), [(LOOP, {"preempted"}), (FINISHING, {"preempted", "completed"})]
)
def test_every_record_is_closed_and_exact(script: Script, body: str, outcomes: set[str]) -> None:
    """No deadlock, no half-booked phase, and the process dies of the signal every time."""
    ended = script.run(
        CHILDREN.replace("        BODY\n", body), OTEL_SDK_DISABLED="true", COSTLENS_OTLP_FILE="0"
    )
    assert ended.code == 0, ended.err
    assert "CODES " + " ".join(["-15"] * 30) in ended.out
    paths = list(ended.folder.glob("*/record-*.json"))
    records = [RankRecord.model_validate_json(path.read_bytes()) for path in paths]
    assert len(records) == 30
    for record in records:
        assert record.attempt.end_time is not None
        assert record.attempt.outcome.value in outcomes
        assert sum(record.time_ns.values()) == record.total_ns
        assert min(record.time_ns.values()) >= 0
        assert record.telemetry.faults == {}
