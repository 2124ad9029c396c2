"""Submits small trainings to the tests' cluster, and reads what they and Slurm have recorded."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from costlens.account.ledger import merge, parse_records
from costlens.core.records import RankRecord
from costlens.core.run_record import RunRecord
from integrations.slurm.testbed.cluster import Cluster

__all__ = ["Jobs"]

SCRIPT = Path(__file__).with_name("train.py")
_COMPLETED = re.compile(r"(\w+)=(\S*)")


@dataclass(frozen=True)
class Jobs:
    """Jobs of one test.

    Args:
        cluster: Where they run.
        folder: The test's own folder; run folders go into ``runs`` below it.
        python: The interpreter that has costlens.
    """

    cluster: Cluster
    folder: Path
    python: str

    def submit(self, *options: str, command: str | None = None, **environ: str) -> str:
        """Submit a batch script that starts a training (or `command`) and return the job's id."""
        wrapped = command or f"exec {self.python} {SCRIPT}"
        return self.cluster.submit(
            *options,
            f"--output={self.folder}/%A-%a.out",
            "--job-name=small",
            f"--wrap={wrapped}",
            **self.environ,
            **environ,
        )

    @property
    def environ(self) -> dict[str, str]:
        """Return the variables of the training."""
        return {"COSTLENS_DIR": str(self.folder / "runs"), "COSTLENS_SUMMARY": "0"}

    def records(self, run_id: str) -> dict[tuple[int, int], RankRecord]:
        """Return the records of a run by attempt and rank."""
        found, problems = parse_records(
            {
                path.name: json.loads(path.read_text())
                for path in (self.folder / "runs" / run_id).glob("record-*.json")
            }
        )
        assert not problems
        assert found, self.outputs()
        return {(r.attempt.number, r.rank.rank): r for r in found.values()}

    def report(self, run_id: str) -> RunRecord:
        """Return the merged record of a run."""
        records = [*self.records(run_id).values()]
        return merge(records, now=max(record.attempt.heartbeat_time for record in records))

    def completed(self, job_id: str) -> list[dict[str, str]]:
        """Return what Slurm wrote about the ends of a job, one by one, in its own log of them."""
        lines = (self.cluster.folder / "completed.txt").read_text().splitlines()
        rows = [dict(_COMPLETED.findall(line)) for line in lines]
        return [row for row in rows if row["JobId"] == job_id]

    def outputs(self) -> str:
        """Return what the jobs have printed, for the message of a failed test."""
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("*.out")))
