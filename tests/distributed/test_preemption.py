"""A signal to one rank, to the other, to both: all save one step and leave with one code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from costlens.core.records import RankRecord
from costlens.protect.agreement import HORIZON_S
from costlens.protect.manifest import Manifest
from tests.distributed.launching import HERE, LIMIT_S, Launcher

STEP_S, VALIDATION_S = 0.03, 4.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


class Job:
    """Two ranks that nobody watches over: each one's exit code is seen.

    Args:
        launch: Tells the environment.
        folder: For checkpoints, run folders and digests.
        port: Where the ranks meet.
    """

    def __init__(self, launch: Launcher, folder: Path, port: str) -> None:
        self.place = folder / "checkpoints"
        self._out = folder
        self._launch = launch
        self._port = port

    def run(
        self,
        kind: str,
        victims: dict[int, signal.Signals],
        num_steps: int = 100_000,
        **environ: str,
    ) -> tuple[list[int], str]:
        """Send signals once all ranks have come to step 3; return their exit codes and output."""
        ranks = [self._start(kind, rank, num_steps, environ) for rank in (0, 1)]
        try:
            outputs = [self._read_to_step(rank, 3) for rank in ranks]
            for victim, signum in victims.items():
                ranks[victim].send_signal(signum)
            outputs += [rank.communicate(timeout=LIMIT_S)[0] for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
        return [rank.returncode for rank in ranks], "\n".join(outputs)

    def run_lightning(self, victim: int) -> tuple[int, str]:
        """Send SIGTERM to one rank of a fit at step 3; return the main process's exit code."""
        main = self._start("lightning", None, 0, {})
        assert main.stdout is not None
        pids: dict[str, int] = {}
        told, lines = set(), []
        try:
            for line in main.stdout:
                lines.append(line)
                words = line.split()
                if line.startswith("PID "):
                    pids[words[1]] = int(words[2])
                elif line.startswith("STEP ") and int(words[2]) >= 3:
                    told.add(words[1])
                if len(told) == 2:
                    break
            os.kill(pids[str(victim)], signal.SIGTERM)
            lines.append(main.communicate(timeout=LIMIT_S)[0])
        finally:
            main.kill()
        return main.returncode, "".join(lines)

    def _start(
        self, kind: str, rank: int | None, num_steps: int, environ: dict[str, str]
    ) -> subprocess.Popen[str]:
        own = {
            "COSTLENS_CHECKPOINT_URL": str(self.place),
            "COSTLENS_DIR": str(self.place / "runs"),
            "COSTLENS_LOG_FORMAT": "json",
            "PYTHONPATH": os.pathsep.join((str(HERE.parents[1]), os.environ.get("PYTHONPATH", ""))),
        }
        command = [str(HERE / "job_leaving.py")]
        if rank is not None:
            command = [str(HERE / "job_checkpoints.py"), kind, str(num_steps), str(self._out)]
            own |= {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank)}
            own |= {"LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
            own |= {"MASTER_PORT": self._port}
        return subprocess.Popen(
            [sys.executable, *command],
            env=self._launch.environ | own | environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def _read_to_step(self, rank: subprocess.Popen[str], step: int) -> str:
        assert rank.stdout is not None
        lines = []
        for line in rank.stdout:
            lines.append(line)
            if line.startswith("STEP ") and int(line.split()[2]) >= step:
                return "".join(lines)
        raise AssertionError("".join(lines))

    @property
    def records(self) -> list[RankRecord]:
        """Return the records of the newest attempt, by rank."""
        (run,) = (self.place / "runs").glob("job*")
        records = self._launch.records(run)
        newest = max(attempt for attempt, _ in records)
        return [records[newest, rank] for rank in (0, 1)]

    @property
    def manifests(self) -> list[Manifest]:
        """Return what was committed, oldest first."""
        paths = sorted(self.place.glob("job*/manifests/*.json"))
        return [Manifest.parse(path.read_bytes()) for path in paths]


@pytest.fixture(name="job")
def _job(launch: Launcher, tmp_path: Path, port: str) -> Job:
    (tmp_path / "job").mkdir()
    return Job(launch, tmp_path / "job", port)


@pytest.mark.parametrize(
    ("kind", "victims"),
    [("lockstep", (0,)), ("lockstep", (1,)), ("lockstep", (0, 1)), ("skewed", (1,))],
)
def test_all_ranks_save_one_step_and_leave(job: Job, kind: str, victims: tuple[int, ...]) -> None:
    """C064: whoever is told: one checkpoint of one step, both ranks preempted and covered."""
    codes, output = job.run(kind, dict.fromkeys(victims, signal.SIGTERM))
    assert codes == [143, 143], output
    (manifest,) = job.manifests
    assert (manifest.kind, manifest.world_size) == ("preemption", 2)
    assert [shard.rank for shard in manifest.shards] == [0, 1]
    for record in job.records:
        attempt, part = record.attempt, record.preemption
        assert (attempt.outcome.value, attempt.exit_code) == ("preempted", 143)
        assert part is not None
        assert (part.reason, part.step, part.is_covered) == ("SIGTERM", manifest.step, True)
        assert attempt.end_step == attempt.saved_step == manifest.step
        assert record.telemetry.faults == {}
        assert (attempt.signal is not None) is (record.rank.rank in victims)
    if kind == "lockstep" and victims == (1,):
        codes, output = job.run(kind, {}, manifest.step + 5)
        assert codes == [0, 0], output
        assert output.count(f" {manifest.step}\n") == 2, "RESUMED, on both ranks"


def test_a_notice_in_a_validation_is_followed_after_it(job: Job) -> None:
    """Only steps are numbered alike on all ranks: five seconds of them after it, at most."""
    codes, output = job.run("validating", {1: signal.SIGTERM})
    assert codes == [143, 143], output
    (manifest,) = job.manifests
    # A rate is counted in whole steps over a second or more.
    assert 3 < manifest.step <= 3 + HORIZON_S * (1 / STEP_S + 1) + 3
    for record in job.records:
        part = record.preemption
        assert part is not None
        assert (part.step, part.is_covered) == (manifest.step, True)
        assert record.time_ns["validation"] >= VALIDATION_S * 1e9


def test_a_rank_that_has_gone_holds_nobody_up(job: Job) -> None:
    """Killed outright, it never answers: the other one is ended in its grace, uncovered."""
    codes, output = job.run("skewed", {1: signal.SIGKILL, 0: signal.SIGTERM}, COSTLENS_GRACE_S="8")
    assert codes == [-signal.SIGTERM, -signal.SIGKILL], output
    part = job.records[0].preemption
    assert part is not None
    assert (part.is_covered, part.uncovered_because) == (False, "no_boundary")
    assert job.manifests == []


@pytest.mark.parametrize("victim", [0, 1])
def test_a_fit_of_two_ranks_leaves_together(job: Job, victim: int) -> None:
    """Lightning alone hangs here (its handler broadcasts): one checkpoint, both ranks covered.

    Its launcher kills the main process where it sees rank 1 gone first: no code is demanded of it.
    """
    code, output = job.run_lightning(victim)
    assert code != 0, output
    (manifest,) = job.manifests
    assert (manifest.kind, manifest.world_size) == ("preemption", 2)
    for record in job.records:
        part = record.preemption
        assert part is not None, output
        assert (part.reason, part.step, part.is_covered) == ("SIGTERM", manifest.step, True)
