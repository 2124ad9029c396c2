"""Two ranks save at one step, and go on from it together or not at all."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from costlens.core.checkpoint_records import CheckpointsPart
from costlens.protect.manifest import CheckpointName, Manifest
from tests.distributed.launching import HERE, LIMIT_S, TORCHRUN, Launcher

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SCRIPT = str(HERE / "job_checkpoints.py")
KILLED_STEPS = 700
OFTEN = {"COSTLENS_MAX_LOSS": "1s", "COSTLENS_LOG_FORMAT": "json"}


class Job:
    """Launches of one job, its checkpoints and what it leaves."""

    def __init__(self, launch: Launcher, folder: Path) -> None:
        self.out = folder
        self.place = folder / "checkpoints"
        folder.mkdir(exist_ok=True)
        self._launch = launch

    def start(
        self, kind: str, num_steps: int, port: str, *, num_ranks: int = 2, **environ: str
    ) -> subprocess.Popen[str]:
        """Start the ranks."""
        options = [*TORCHRUN, port]
        options[options.index("--nproc-per-node") + 1] = str(num_ranks)
        command = [sys.executable, *options, SCRIPT, kind, str(num_steps), str(self.out)]
        own = {
            "COSTLENS_CHECKPOINT_URL": str(self.place),
            "COSTLENS_DIR": str(self.place / "runs"),
            "PYTHONPATH": os.pathsep.join((str(HERE.parents[1]), os.environ.get("PYTHONPATH", ""))),
        }
        return subprocess.Popen(
            command,
            env=self._launch.environ | OFTEN | own | environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, kind: str, num_steps: int, port: str, **environ: str) -> list[str]:
        """Return the lines of a launch that ends by itself."""
        job = self.start(kind, num_steps, port, **environ)
        output, _ = job.communicate(timeout=LIMIT_S)
        assert job.returncode == 0, output
        return output.splitlines()

    def run_until(self, step: int, victim: int, port: str) -> None:
        """Kill one rank once it has come to a step."""
        job = self.start("lockstep", KILLED_STEPS, port)
        assert job.stdout is not None
        pids = {}
        with job.stdout:
            for line in job.stdout:
                fields = line.split()[:3]  # none where two ranks ended their lines at once
                if fields[:1] == ["PID"]:
                    pids[int(fields[1])] = int(fields[2])
                if fields == ["STEP", str(victim), str(step)]:
                    os.kill(pids[victim], signal.SIGKILL)
        assert job.wait(LIMIT_S) != 0

    @property
    def digests(self) -> list[str]:
        """Return the steps done and the digest of the final state of each rank."""
        return [(self.out / f"digest-{rank}").read_text() for rank in (0, 1)]

    @property
    def manifests(self) -> dict[CheckpointName, Manifest]:
        """Return what was committed and is kept, oldest first."""
        found = {}
        for path in self.place.glob("job*/manifests/*.json"):
            name = CheckpointName.parse(path.stem)
            assert name is not None
            found[name] = Manifest.parse(path.read_bytes())
        return dict(sorted(found.items()))

    def part(self, attempt: int, rank: int) -> CheckpointsPart:
        """Return what a rank's record says of its checkpoints."""
        (run,) = (self.place / "runs").glob("job*")
        part = self._launch.records(run)[attempt, rank].checkpoints
        assert part is not None
        return part


@pytest.fixture
def job(launch: Launcher, tmp_path: Path) -> Job:
    """Return a job that has never been launched."""
    return Job(launch, tmp_path / "job")


def resumed(lines: list[str]) -> list[str]:
    """Return the steps that both ranks went on from."""
    told = sorted(line.split() for line in lines if line.startswith("RESUMED"))
    return [step for _, _, step in told]


@pytest.mark.parametrize("kind", ["lockstep", "skewed"])
def test_both_ranks_save_at_one_step(job: Job, port: str, kind: str) -> None:
    """C059: in lockstep or drifting apart: one name, one step, a shard each, the end is saved, too.

    The next launch goes on from there on both ranks.
    """
    lines = job.run(kind, 300, port)
    assert job.digests == job.digests[:1] * 2 or kind == "skewed"
    kinds = [(manifest.kind, manifest.step) for manifest in job.manifests.values()]
    assert [kind for kind, _ in kinds] == ["interval", "final"]
    assert 0 < kinds[0][1] < kinds[1][1] == 300
    for name, manifest in job.manifests.items():
        assert (name.step, manifest.world_size) == (manifest.step, 2)
        assert [shard.rank for shard in manifest.shards] == [0, 1]
    one, other = job.part(1, 0), job.part(1, 1)
    assert one.num_saved == other.num_saved >= 2
    assert one.num_failed == other.num_failed == 0
    assert one.last_name == other.last_name == str([*job.manifests][-1])
    assert resumed(lines) == ["0", "0"]
    assert resumed(job.run(kind, 301, port)) == ["300", "300"]


def test_killed_again_and_again_two_ranks_end_alike(
    launch: Launcher, tmp_path: Path, port: str
) -> None:
    """A rank is killed at a random step, whichever it is: the ranks end bitwise as if none was."""
    calm, rough = Job(launch, tmp_path / "calm"), Job(launch, tmp_path / "rough")
    calm.run("lockstep", KILLED_STEPS, port)
    choice, step = random.Random(3), 0
    for victim in (0, 1, 1):
        # A save takes seconds of steps to be agreed on; some kills come before it, some after.
        rough.run_until(step + choice.randint(100, 230), victim, port)
        step = max([name.step for name in rough.manifests], default=0)
    assert 0 < step < KILLED_STEPS, "some launch came as far as a save, and none to the end"
    assert resumed(rough.run("lockstep", KILLED_STEPS, port)) == [str(step)] * 2
    assert rough.digests == calm.digests


def test_both_go_back_where_one_rank_cannot_go_on(job: Job, port: str) -> None:
    """C033: a byte of rank 1's shard has flipped: both take the checkpoint before, and say why."""
    job.run("lockstep", 300, port)
    older, newest = job.manifests
    (shard,) = job.place.glob(f"job*/data/{newest}/r00001-00000")
    data = bytearray(shard.read_bytes())
    data[100] ^= 1
    shard.write_bytes(data)
    assert resumed(job.run("lockstep", 320, port)) == [str(older.step)] * 2
    for rank in (0, 1):
        part = job.part(2, rank)
        assert part.resumed_from == str(older)
        (reason,) = part.rejected
        assert "rank 1: r00001-00000 is not what was written" in reason


def test_a_rank_that_cannot_write_fails_every_save(job: Job, port: str) -> None:
    """C037 C041: no manifest without all shards; both ranks count and say it; training goes on."""
    lines = job.run("broken", 250, port)
    assert job.manifests == {}
    assert [*job.place.glob("job*/data/*/*")] == [], "what is of no use is removed"
    for rank in (0, 1):
        part = job.part(1, rank)
        assert part.num_saved == 0
        assert part.num_failed >= 2
    told = [line for line in lines if "costlens.checkpoint.failed" in line]
    assert any("rank 1" in line and "Permission denied" in line for line in told)


def test_another_number_of_ranks_goes_on(job: Job, port: str) -> None:
    """One rank goes on from the checkpoint of two that train alike, and says what is not exact."""
    job.run("lockstep", 5, port)
    alone = job.start("lockstep", 6, port, num_ranks=1)
    output, _ = alone.communicate(timeout=LIMIT_S)
    assert alone.returncode == 0, output
    assert resumed(output.splitlines()) == ["5"]
    assert "random numbers: saved by 2 ranks and resumed by 1" in output


def test_a_budget_stops_beside_checkpoints(job: Job, port: str) -> None:
    """Both propose to the same ranks: saves and the stop each happen at one step, then the end."""
    job.run(
        "budget",
        4000,
        port,
        COSTLENS_NODE_HOUR_PRICE="3600",
        COSTLENS_BUDGET="12",
        COSTLENS_BUDGET_ACTION="stop",
    )
    one, other = (int(digest.split()[0]) for digest in job.digests)
    assert one == other < 4000
    kinds = [(manifest.kind, manifest.step) for manifest in job.manifests.values()]
    assert kinds[-1] == ("final", one)
    assert job.part(1, 0).num_saved == job.part(1, 1).num_saved >= 2


def test_ranks_without_a_group_are_refused(job: Job, port: str) -> None:
    """Nothing lets them agree: the call fails and says where it belongs."""
    alone = job.start("alone", 5, port)
    output, _ = alone.communicate(timeout=LIMIT_S)
    assert alone.returncode != 0
    assert "call run.checkpoints after torch.distributed.init_process_group" in output


def test_sharded_parameters_come_back_on_the_same_ranks(
    launch: Launcher, tmp_path: Path, port: str
) -> None:
    """FSDP: each rank saves the part that it holds, and two launches end bitwise as one."""
    whole, halves = Job(launch, tmp_path / "whole"), Job(launch, tmp_path / "halves")
    whole.run("sharded", 40, port)
    halves.run("sharded", 15, port)
    assert resumed(halves.run("sharded", 40, port)) == ["15", "15"]
    assert halves.digests == whole.digests


def test_a_run_that_is_opened_again_meets_again(job: Job, port: str) -> None:
    """A second fit in one process: its ranks meet about its own start and end, not the first's."""
    lines = job.run("again", 20, port)
    assert sorted(resumed(lines)) == ["0", "0", "20", "20"]
    assert [name.step for name in job.manifests] == [20, 25]
    assert job.digests[0] == job.digests[1]


def wholes(lines: list[str]) -> list[tuple[str, str, str]]:
    """Return rank, step and digest of every whole state that was told."""
    told = [tuple(line.split()[1:4]) for line in lines if line.startswith("WHOLE")]
    return [(rank, step, digest) for rank, step, digest in told]


def test_sharded_parameters_come_back_on_other_ranks(job: Job, port: str) -> None:
    """FSDP on 2 ranks, 1, 2, 1 without it, and 2: every value is the same after each change.

    What random numbers and samples follow is not, which record and log say.
    """
    end = wholes(job.run("sharded", 15, port))[-1][1:]
    changes = (("sharded", 1), ("sharded", 2), ("gathered", 1), ("sharded", 2))
    for number, (kind, num_ranks) in enumerate(changes):
        steps = 16 + number
        launch = job.start(kind, steps, port, num_ranks=num_ranks)
        output, _ = launch.communicate(timeout=LIMIT_S)
        assert launch.returncode == 0, output
        told = wholes(output.splitlines())
        assert [each[1:] for each in told[:num_ranks]] == [end] * num_ranks, "after the resume"
        end = told[-1][1:]
        assert end[0] == str(steps)
        part = job.part(2 + number, 0)
        before = 3 - num_ranks
        text = f"random numbers: saved by {before} ranks and resumed by {num_ranks}"
        assert any(line.startswith(text) for line in part.inexact)
        assert any(f"world size: {before} at the save" in line for line in part.inexact)
        assert text in output


def test_what_ddp_ranks_hold_alike_is_written_once(job: Job, port: str) -> None:
    """Rank 1 writes its random numbers and its place in the data, and not the model once more."""
    job.run("lockstep", 5, port, WIDTH="20000")
    (manifest,) = job.manifests.values()
    one, other = manifest.shards
    assert (one.base, other.base) == (None, 0)
    assert one.num_bytes == other.num_bytes > 2_400_000
    assert other.own_bytes < one.num_bytes / 50
    assert manifest.num_bytes == job.part(1, 0).num_bytes + job.part(1, 1).num_bytes
    assert resumed(job.run("lockstep", 6, port, WIDTH="20000")) == ["5", "5"]
    assert len({digest.split()[0] for digest in job.digests}) == 1
