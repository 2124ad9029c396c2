"""Launches jobs of two ranks in processes of their own, and reads what they left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costlens.core.records import Outcome, RankRecord
from tests.fixtures_otlp import Item, OtlpReceiver

HERE = Path(__file__).parent
TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port")
SUMMARY = "Where the time went"
COUNTED = "COUNTED "
AGAIN = "AGAIN\n"
LIMIT_S = 100.0  # a launch that takes longer hangs


@dataclass(frozen=True)
class Launch:
    """What one launch printed."""

    output: str

    @property
    def counted(self) -> list[dict[str, int]]:
        """Return what the ranks counted themselves, by rank."""
        lines = [line for line in self.output.splitlines() if line.startswith(COUNTED)]
        counted = [json.loads(line.removeprefix(COUNTED)) for line in lines]
        return sorted(counted, key=lambda line: line["rank"])

    @property
    def num_samples(self) -> int:
        """Return the samples that the ranks counted themselves."""
        return sum(rank["samples"] for rank in self.counted)

    def split(self) -> list[Launch]:
        """Return the launches that one process made one after the other."""
        return [Launch(output) for output in self.output.split(AGAIN)]


@dataclass(frozen=True)
class Launcher:
    """Runs scripts of this folder with one run folder and, if given, one receiver."""

    folder: Path
    receiver: OtlpReceiver | None = None

    def __call__(
        self, script: str, *args: str, prefix: tuple[str, ...] = (), **environ: str
    ) -> Launch:
        """Return what a launch printed, after it has ended well.

        Args:
            script: A file of this folder.
            args: Its arguments.
            prefix: What stands between the interpreter and the script, such as `TORCHRUN`.
            environ: More variables.
        """
        done = subprocess.run(
            [sys.executable, *prefix, str(HERE / script), *args],
            env=self.environ | environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return Launch(done.stdout)

    @property
    def environ(self) -> dict[str, str]:
        """Return the environment of the launches: nothing of the test's own but the run folder."""
        telemetry = {}
        # Where the package is not installed.
        checkout = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
        if self.receiver is not None:
            telemetry["OTEL_EXPORTER_OTLP_ENDPOINT"] = self.receiver.endpoint
        return {
            "PATH": os.defpath,
            "HOME": str(self.folder.parent),
            "OMP_NUM_THREADS": "1",
            "COSTLENS_DIR": str(self.folder),
            "COSTLENS_WINDOW_S": "0.1",
            **checkout,
            **telemetry,
        }

    @property
    def runs(self) -> list[Path]:
        """Return the run folders, oldest first."""
        return sorted(self.folder.iterdir(), key=lambda path: (path / "attempts").stat().st_mtime)

    def records(self, run: Path) -> dict[tuple[int, int], RankRecord]:
        """Return a run's records by attempt and rank, as their file names tell them."""
        found = {}
        for path in run.glob("record*"):
            record = RankRecord.model_validate_json(path.read_bytes())
            key = (record.attempt.number, record.rank.rank)
            assert path.name == f"record-{key[0]}-{key[1]}.json"
            found[key] = record
        return dict(sorted(found.items()))


def check_attempts(records: dict[tuple[int, int], RankRecord], *launches: Launch) -> None:
    """Check that each launch is one attempt of two ranks, and that nothing is lost or doubled."""
    assert [*records] == [(n + 1, rank) for n in range(len(launches)) for rank in (0, 1)]
    keys = {record.attempt.launch_key for record in records.values()}
    assert len(keys) == len(launches)
    for number, launch in enumerate(launches, start=1):
        of_attempt = [records[number, rank] for rank in (0, 1)]
        assert [record.rank.pid for record in of_attempt] == [c["pid"] for c in launch.counted]
        assert sum(record.progress.samples or 0 for record in of_attempt) == launch.num_samples > 0
        assert len({record.attempt.launch_key for record in of_attempt}) == 1
        for rank, record in enumerate(of_attempt):
            assert (record.rank.local_rank, record.rank.node_rank) == (rank, 0)
            assert (record.rank.world_size, record.rank.local_world_size) == (2, 2)
            assert record.attempt.outcome is Outcome.COMPLETED
            assert record.telemetry.faults == {}
            assert sum(record.time_ns.values()) == record.total_ns
        assert launch.output.count(SUMMARY) == 1, "rank 0 alone prints the summary"


def check_telemetry(receiver: OtlpReceiver, run_id: str, attempt: int, num_samples: int) -> None:
    """Check that ranks never overwrite each other, and that they share the traces of a launch."""
    key = (run_id, attempt)
    points = [point for point in receiver.points() if _key(point.resource) == key]
    newest = {}
    for point in points:
        if point.name == "costlens.samples":
            newest[point.resource["service.instance.id"]] = point.value
    assert sorted(newest) == [f"{run_id}/{attempt}/{rank}" for rank in (0, 1)]
    assert sum(newest.values()) == num_samples
    spans = [span for span in receiver.spans() if _key(span.resource) == key]
    ids = [(span.proto.trace_id, span.proto.span_id) for span in spans]
    assert len(ids) == len({*ids}), "no span is sent twice"
    assert _ranks(spans, "costlens.run") == [0]
    assert _ranks(spans, "costlens.run.end") == [0]
    roots = {span.proto.trace_id for span in _named(spans, "costlens.period")}
    of_ranks: dict[bytes, set[int]] = {}
    for span in _named(spans, "costlens.rank.period"):
        of_ranks.setdefault(span.proto.trace_id, set()).add(span.resource["costlens.rank"])
    assert len(roots) == len(_named(spans, "costlens.period")), "one root a period"
    assert 1 <= len(roots) <= len(of_ranks)
    assert {0, 1} in of_ranks.values(), "the ranks share a trace"


def _key(resource: dict[str, Any]) -> tuple[str, int]:
    return resource["costlens.run.id"], resource["costlens.attempt"]


def _named(spans: list[Item], name: str) -> list[Item]:
    return [span for span in spans if span.proto.name == name]


def _ranks(spans: list[Item], name: str) -> list[int]:
    return [span.resource["costlens.rank"] for span in _named(spans, name)]
