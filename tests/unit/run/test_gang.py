"""What rank 0 learns of the other ranks and of the attempts before, from a real run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from costlens.core.attempt_state import AttemptState
from costlens.core.clock import NS_PER_S, Anchor
from costlens.core.gang_records import GangPart
from costlens.core.records import RankPart, RankRecord, RunPart
from costlens.errors import StorageError
from costlens.gang import Gang
from costlens.storage.run_folder import RunFolder
from costlens.storage.store import Store
from costlens.testing import FakeClock
from tests.log_events import capture_events
from tests.unit.account.build import START, make_record


class CountingStore(Store):
    """A store that counts what it is asked, and can be slow or out of reach."""

    num_listed = num_read = 0
    is_down = is_dumb = False
    slow_s = 0.0
    clock = FakeClock()

    def versions(self, prefix: str = "") -> dict[str, str]:
        """List, slowly."""
        self.num_listed += 1
        self.clock.advance(self.slow_s)
        if self.is_down:
            raise StorageError("out of reach")
        found = super().versions(prefix)
        return dict.fromkeys(found, "") if self.is_dumb else found

    def read_many(self, keys: list[str]) -> dict[str, Any]:
        """Read."""
        self.num_read += len(keys)
        return super().read_many(keys)


class Job:
    """Rank 0 of a job, with a run folder on disk and a clock that stands still."""

    def __init__(
        self, folder: Path, *, attempt: int = 1, rank: int = 0, world_size: int = 3
    ) -> None:
        self.clock = FakeClock(NS_PER_S)
        self.store = CountingStore(folder)
        self.store.clock = self.clock
        self.folder = RunFolder(self.store, "run")
        self.counts = {"iterations": 0}
        self.state = AttemptState(
            run=RunPart(id="run", name="run", costlens_version="0"),
            rank=RankPart(rank=rank, world_size=world_size, host_name="h", pid=1),
            anchor=Anchor(wall_ns=int(START * NS_PER_S), mono_ns=NS_PER_S),
            start_ns=NS_PER_S,
            number=attempt,
        )
        self.gang = Gang(self.state, self.clock, 10.0, lambda: self.folder, lambda: self.counts)

    def write(self, record: RankRecord) -> None:
        """Write a rank's record as that rank would."""
        number, rank = record.attempt.number, record.rank.rank
        self.folder.write_record(number, rank, record.model_dump_json().encode())

    def beat(self, *ranks: int, outcome: str = "running") -> None:
        """Let ranks write a record that differs from the last one."""
        for rank in ranks:
            beat = START + self.clock() / NS_PER_S
            self.write(make_record(1, rank, outcome=outcome, heartbeat_time=beat))

    def look(self, after_s: float = 0.0) -> GangPart | None:
        """Return what is known after some seconds."""
        self.clock.advance(after_s)
        self.gang.look()
        return self.state.gang


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Return a first attempt of three ranks."""
    return Job(tmp_path)


def test_a_rank_that_falls_silent_is_named(job: Job) -> None:
    """Rank 2 writes no more: missing after a minute, told once, back with its next heartbeat."""
    job.beat(0, 1, 2)
    assert job.look() == GangPart(num_reporting=3, num_restarts=0, restart_loop=0)
    with capture_events() as events:
        for second in range(10, 100, 10):
            job.beat(0, 1)
            seen = job.look(10)
            expected = (2, [2]) if second > 60 else (3, [])
            assert (seen.num_reporting, seen.missing_ranks) == expected
        job.beat(0, 1, 2)
        assert job.look(10).num_reporting == 3
    told = [(event["event"], event.get("ranks")) for event in events]
    assert told == [("costlens.ranks.missing", [2]), ("costlens.ranks.back", None)]


def test_ranks_that_never_come_are_missing_after_a_minute(job: Job) -> None:
    """Rank 0 counts itself, whatever its own disk does."""
    assert job.look().num_reporting == 1
    for _ in range(6):
        assert job.look(10).missing_ranks == []
    seen = job.look(10)
    assert (seen.num_reporting, seen.missing_ranks) == (1, [1, 2])


def test_a_rank_that_ended_by_its_own_word_is_not_missing(job: Job) -> None:
    """A rank may be done long before the others; its record is read once to know."""
    job.beat(0, 2)
    job.beat(1, outcome="completed")
    job.look()
    for _ in range(12):
        job.beat(2)
        seen = job.look(10)
        assert (seen.num_reporting, seen.missing_ranks) == (3, [])
    assert job.store.num_read == 1


def test_what_a_silent_rank_wrote_last_is_read_once(job: Job) -> None:
    """It said nothing of an end: it stays missing, and rank 0 does not read on and on."""
    job.beat(1, 2)
    job.look()
    for _ in range(20):
        job.beat(2)
        seen = job.look(10)
    assert (seen.num_reporting, seen.missing_ranks) == (2, [1])
    assert job.store.num_read == 1


def test_the_end_reads_nothing_of_others(job: Job) -> None:
    """A store that hangs must not hold the end up; what was known last stands."""
    job.beat(0, 1, 2)
    before = job.look()
    job.store.slow_s = 100.0
    job.gang.look(is_last=True)
    assert job.state.gang is before
    assert job.store.num_listed == 1


def test_a_slow_store_is_asked_less_often(job: Job) -> None:
    """A listing of 3 s is made every five minutes at most: a hundredth of the time."""
    job.store.slow_s = 3.0
    job.beat(1, 2)
    for _ in range(60):
        job.look(10)
    assert job.store.num_listed == 2


def test_a_store_out_of_reach_makes_nobody_missing(job: Job) -> None:
    """What cannot be seen is unknown; nothing is raised, and the next look asks again."""
    job.beat(1, 2)
    assert job.look().num_reporting == 3
    job.store.is_down = True
    seen = job.look(100)
    assert (seen.num_reporting, seen.missing_ranks) == (None, [])
    job.store.is_down = False
    # Nobody else could write either.
    seen = job.look(10)
    assert (seen.num_reporting, seen.missing_ranks) == (3, [])
    for _ in range(6):
        job.beat(1)
        job.look(10)
    assert job.look(1).missing_ranks == [2]


def test_a_job_that_stood_still_misses_nobody(job: Job) -> None:
    """All of it was suspended for an hour: nobody could have written."""
    job.beat(1, 2)
    job.look()
    seen = job.look(3600)
    assert (seen.num_reporting, seen.missing_ranks) == (3, [])


def test_a_folder_that_comes_late_is_looked_into_then(job: Job) -> None:
    """While the store refuses there is no identity, and so nowhere to look."""
    folder, job.folder = job.folder, None
    assert job.look() is None
    job.folder = folder
    job.beat(1, 2)
    assert job.look(10) == GangPart(num_reporting=3, num_restarts=0, restart_loop=0)


def test_a_store_that_does_not_tell_what_changes_makes_nobody_missing(job: Job) -> None:
    """No tag, no time: that a record is there says nothing of its rank."""
    job.store.is_dumb = True
    job.beat(1, 2)
    for _ in range(10):
        seen = job.look(10)
        assert (seen.num_reporting, seen.missing_ranks) == (None, [])


def test_rank_0_alone_looks(tmp_path: Path) -> None:
    """The others read nothing; a job of one rank lists nothing."""
    other = Job(tmp_path, rank=1)
    assert other.look() is None
    single = Job(tmp_path, world_size=1)
    assert single.look().num_reporting == 1
    assert other.store.num_listed == single.store.num_listed == 0


def make_attempts(job: Job, *outcomes: str) -> None:
    """Write earlier attempts that each made steps 0 to 100."""
    for number, outcome in enumerate(outcomes, start=1):
        record = make_record(
            number,
            outcome=outcome,
            world_size=3,
            progress={"iterations": 100, "optimizer_steps": 100},
            attempt_start_step=0,
            attempt_end_step=100,
        )
        job.write(record)


def test_a_restart_loop_is_an_alarm_until_the_attempt_gets_further(tmp_path: Path) -> None:
    """One killed attempt never said so: it is over all the same, for this one has begun."""
    job = Job(tmp_path, attempt=4)
    make_attempts(job, "failed", "failed", "running")
    with capture_events() as events:
        seen = job.look()
    assert (seen.num_restarts, seen.restart_loop) == (3, 3)
    (event,) = [event for event in events if event["event"] == "costlens.restart_loop"]
    assert (event["num_attempts"], event["loop_step"]) == (3, 100)
    job.state.start_step = 0
    for steps, length in ((0, 3), (100, 3), (107, 0), (10, 0)):
        job.counts = {"iterations": steps, "optimizer_steps": steps}
        assert job.look(10).restart_loop == length
    assert job.store.num_read == 3, "the attempts before are read once"


def test_attempts_that_went_on_are_no_loop(tmp_path: Path) -> None:
    """A restart alone is none."""
    job = Job(tmp_path, attempt=3)
    make_attempts(job, "failed", "completed")
    assert job.look().restart_loop == 0


def test_attempts_that_cannot_be_read_leave_the_loop_unknown(tmp_path: Path) -> None:
    """They may have lost their records; the number of restarts is known all the same."""
    seen = Job(tmp_path, attempt=5).look()
    assert (seen.num_restarts, seen.restart_loop) == (4, None)


def test_no_more_than_sixteen_attempts_are_read(tmp_path: Path) -> None:
    """However often a run was restarted, its start stays short."""
    job = Job(tmp_path, attempt=500)
    job.look()
    assert job.store.num_read == 16
