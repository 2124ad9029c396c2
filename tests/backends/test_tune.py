"""A live run of two ranks, tuned from another process, as a real receiver sees it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from costlens.core.records import RankRecord
from costlens.export.periods import MAX_SPANS_PER_HOUR
from tests.fixtures_otlp import Item, OtlpReceiver

SCRIPT = Path(__file__).parent / "tuned_loop.py"


class Tuned:
    """A job of two ranks that train until they are told to end."""

    def __init__(self, folder: Path, receiver: OtlpReceiver) -> None:
        self.folder = folder
        self.receiver = receiver
        self.environ = {
            "PATH": os.defpath,
            "OMP_NUM_THREADS": "1",
            "COSTLENS_DIR": str(folder),
            "COSTLENS_WINDOW_S": "0.2",
            **{name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ},
        }
        self.ranks = [self._start(rank) for rank in range(2)]

    def _start(self, rank: int) -> subprocess.Popen[str]:
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}
        return subprocess.Popen(
            [sys.executable, str(SCRIPT)],
            env={
                **self.environ,
                **{name: str(value) for name, value in place.items()},
                "OTEL_EXPORTER_OTLP_ENDPOINT": self.receiver.endpoint,
                "OTEL_LOGS_EXPORTER": "otlp",
            },
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def tune(self, *arguments: str) -> dict[str, Any]:
        """Return what the command shows."""
        done = subprocess.run(
            [sys.executable, "-m", "costlens", "tune", "latest", "--json", *arguments],
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        shown: dict[str, Any] = json.loads(done.stdout)
        return shown

    def wait_for_records(self) -> None:
        """Wait until both ranks are seen by a reader."""
        deadline = time.monotonic() + 60
        while len([*self.folder.glob("*/record-*.json")]) < 2:
            assert time.monotonic() < deadline
            assert all(rank.poll() is None for rank in self.ranks)
            time.sleep(0.05)

    def wait_for_failures(self) -> None:
        """Wait until both ranks have met twice more what they cannot read."""
        before = [record.telemetry.control_failures for record in self.records()]
        deadline = time.monotonic() + 60
        while any(
            record.telemetry.control_failures < num + 2
            for record, num in zip(self.records(), before, strict=True)
        ):
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def end(self) -> list[RankRecord]:
        """End the job and return the last record of each rank."""
        for rank in self.ranks:
            _, err = rank.communicate(timeout=60)
            assert rank.returncode == 0, err
        return self.records()

    def records(self) -> list[RankRecord]:
        """Return the newest record of each rank."""
        paths = sorted(self.folder.glob("*/record-*.json"))
        return [RankRecord.model_validate_json(path.read_bytes()) for path in paths]

    def iterations(self, rank: int, reason: str = "asked") -> list[Item]:
        """Return the spans of a rank's iterations that were shown for a reason."""
        named = [span for span in self.receiver.spans() if span.proto.name == "costlens.iteration"]
        return [
            span
            for span in named
            if (span.attributes["costlens.rank"], span.attributes["costlens.reason"])
            == (rank, reason)
        ]

    def periods(self, rank: int) -> list[dict[str, Any]]:
        """Return the attributes of a rank's periods, in order."""
        named = [s for s in self.receiver.spans() if s.proto.name == "costlens.rank.period"]
        mine = [span for span in named if span.attributes["costlens.rank"] == rank]
        return [s.attributes for s in sorted(mine, key=lambda s: s.proto.start_time_unix_nano)]


@pytest.fixture
def tuned(tmp_path: Path, otlp_receiver: OtlpReceiver) -> Iterator[Tuned]:
    """Return a job that trains."""
    job = Tuned(tmp_path / "runs", otlp_receiver)
    yield job
    for rank in job.ranks:
        rank.kill()
        rank.communicate()


def test_step_spans_come_and_go_without_a_restart(
    tuned: Tuned, otlp_receiver: OtlpReceiver
) -> None:
    """`tune` shows every iteration of the one rank that is named, and stops by itself.

    The period and the log say so, the record says what is in force, and the hourly limit holds.
    """
    tuned.wait_for_records()
    otlp_receiver.wait_for(lambda _: tuned.periods(0) and tuned.periods(1), 60)
    assert not tuned.iterations(1)
    asked = tuned.tune("--detail", "steps", "--for", "3s", "--rank", "1")["asked"]
    otlp_receiver.wait_for(lambda _: len(tuned.iterations(1)) > 3, 60)
    otlp_receiver.wait_for(lambda _: tuned.periods(1)[-1]["costlens.detail"] == "normal", 60)
    shown = tuned.iterations(1)
    num_periods = len(tuned.periods(1))
    otlp_receiver.wait_for(lambda _: len(tuned.periods(1)) > num_periods + 3, 60)
    assert tuned.tune()["asked"] is None
    records = tuned.end()

    assert len(tuned.iterations(1)) == len(shown), "none after the end"
    numbers = sorted(span.attributes["costlens.iteration"] for span in shown)
    assert numbers == [*range(numbers[0], numbers[-1] + 1)], "one after the other"
    # A request holds for whole windows.
    assert max(span.proto.start_time_unix_nano for span in shown) < (asked["until"] + 5) * 1e9
    assert {"normal", "steps"} == {period["costlens.detail"] for period in tuned.periods(1)}
    assert not tuned.iterations(0)
    assert {period["costlens.detail"] for period in tuned.periods(0)} == {"normal"}
    told = [log for log in otlp_receiver.logs() if log.proto.event_name == "costlens.detail"]
    assert [log.attributes["costlens.reason"] for log in told] == ["asked", "over"]
    ranks = [span.attributes["costlens.rank"] for span in otlp_receiver.spans()]
    assert max(ranks.count(rank) for rank in (0, 1)) <= MAX_SPANS_PER_HOUR
    for record in records:
        assert record.telemetry.detail is not None
        assert record.telemetry.detail.name.value == "normal"
        assert (record.telemetry.control_failures, record.telemetry.faults) == (0, {})


def test_a_hostile_control_file_harms_nothing(tuned: Tuned) -> None:
    """Torn, huge, and a folder in its place: each is counted, and training goes on."""
    tuned.wait_for_records()
    (folder,) = tuned.folder.iterdir()
    control = folder / "control.json"
    for data in (b'{"detail": "st', b"[" * 50_000_000):
        control.write_bytes(data)
        tuned.wait_for_failures()
    control.unlink()
    os.mkfifo(control)
    tuned.wait_for_failures()
    for record in tuned.end():
        assert record.attempt.outcome.value == "completed"
        assert record.telemetry.faults == {}
