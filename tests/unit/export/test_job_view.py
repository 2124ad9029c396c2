"""What rank 0 reads of the others, and how little time it takes for that."""

from __future__ import annotations

from pathlib import Path

import pytest

from costlens.account.ledger import merge
from costlens.account.run_totals import total_run
from costlens.core.records import RankRecord
from costlens.errors import StorageError
from costlens.export.job_view import JobView
from costlens.storage.run_folder import RunFolder
from costlens.storage.store import Store
from costlens.testing import FakeClock
from tests.unit.account.build import START, make_iteration_time, make_price, make_record

NUM_RANKS = 40


class CountingFolder(RunFolder):
    """Counts the records that are read, each of which takes its time."""

    def __init__(self, store: Store, clock: FakeClock, read_s: float) -> None:
        super().__init__(store, "run")
        self.read: list[tuple[int, int]] = []
        self._clock = clock
        self._read_s = read_s

    def read_some_records(self, pairs):
        """Read, and let time pass."""
        asked = [*pairs]
        self.read += asked
        self._clock.advance(self._read_s * len(asked))
        return super().read_some_records(asked)


def make_rank(attempt: int, rank: int, compute_s: float = 100.0, **more: object) -> RankRecord:
    """Return a record at 0.01 a second."""
    return make_record(
        attempt, rank, world_size=NUM_RANKS, time_s={"compute": compute_s},
        price=make_price("36"), progress={"iterations": 10, "optimizer_steps": 10, "tokens": 5},
        iteration_time=make_iteration_time(1.0), attempt_start_step=0, attempt_end_step=10,
        **more,
    )  # fmt: skip


@pytest.fixture
def clock() -> FakeClock:
    """Return the clock of rank 0."""
    return FakeClock()


def make_folder(tmp_path: Path, clock: FakeClock, read_s: float, *attempts: int) -> CountingFolder:
    """Return a folder with all records of some attempts."""
    folder = CountingFolder(Store(tmp_path), clock, read_s)
    for attempt in attempts:
        for rank in range(NUM_RANKS):
            outcome = "failed" if attempt < max(attempts) else "running"
            record = make_rank(attempt, rank, outcome=outcome)
            folder.write_record(attempt, rank, record.model_dump_json().encode())
    return folder


def test_totals_are_those_of_the_ledger(tmp_path: Path, clock: FakeClock) -> None:
    """Two attempts of forty ranks: the same sums as the report makes of all records."""
    folder = make_folder(tmp_path, clock, 0.0, 1, 2)
    own = make_rank(2, 0, 150.0, outcome="running")
    view = JobView(clock)
    assert view.look(folder, own)
    assert (view.is_ready, view.is_complete) == (True, True)
    totals = total_run(view.records(own), START + 2000, is_complete=view.is_complete)
    folder.write_record(2, 0, own.model_dump_json().encode())
    records = [RankRecord.model_validate(each) for each in folder.read_records()[0].values()]
    run = merge(records, now=START + 2000)
    assert totals.cost == {"USD": run.cost.total}
    assert totals.time_s == run.time_s["total"] == 80 * 100 + 50
    assert totals.goodput == run.goodput.share
    assert (totals.lost_steps, totals.productive_steps) == (10, 10)
    assert (totals.tokens, totals.num_records, totals.is_partial) == (400, 80, False)


def test_earlier_attempts_are_read_once_and_live_ranks_in_turn(
    tmp_path: Path, clock: FakeClock
) -> None:
    """At 50 ms a record: 2 s at first, then a quarter of a second at a time; nobody is left out."""
    folder = make_folder(tmp_path, clock, 0.05, 1, 2)
    own = make_rank(2, 0, outcome="running")
    view = JobView(clock)
    while not view.is_ready:
        view.look(folder, own)
        clock.advance(600)
    assert sorted(folder.read[:NUM_RANKS]) == [(1, rank) for rank in range(NUM_RANKS)]
    folder.read.clear()
    for _ in range(6):
        before = len(folder.read)
        assert view.look(folder, own)
        assert len(folder.read) - before <= 16, "one request is begun, whatever it takes"
        clock.advance(600)
    assert {*folder.read} == {(2, rank) for rank in range(1, NUM_RANKS)}


def test_reading_takes_a_hundredth_of_the_time(tmp_path: Path, clock: FakeClock) -> None:
    """Windows of 10 s for an hour, on a store that takes 20 ms a record."""
    folder = make_folder(tmp_path, clock, 0.02, 1)
    own = make_rank(1, 0, outcome="running")
    view = JobView(clock)
    spent_s = 0.0
    for _ in range(360):
        began = clock.now_ns
        view.look(folder, own)
        spent_s += (clock.now_ns - began) / 1e9
        clock.advance(10.0)
    assert 0 < spent_s < 0.011 * 3600
    assert len(folder.read) > NUM_RANKS, "and yet everyone is read again"


def test_the_end_of_the_process_waits_for_no_other_rank(tmp_path: Path, clock: FakeClock) -> None:
    """The last look adds up what is known and this rank's last word, without a single read."""
    folder = make_folder(tmp_path, clock, 0.02, 1)
    view = JobView(clock)
    view.look(folder, make_rank(1, 0, outcome="running"))
    folder.read.clear()
    last = make_rank(1, 0, 500.0)
    assert view.look(folder, last, is_last=True)
    assert folder.read == []
    totals = total_run(view.records(last), START + 600, is_complete=view.is_complete)
    assert totals.time_s >= 500.0
    hurried = JobView(clock)
    began_ns = clock.now_ns
    hurried.look(folder, last, is_last=True)
    assert clock.now_ns - began_ns < 0.7e9, "a first look at the very end is a short one"


def test_a_rank_without_a_record_makes_the_cost_partial(tmp_path: Path, clock: FakeClock) -> None:
    """What is known is added up and says that it is not all."""
    folder = make_folder(tmp_path, clock, 0.0, 1)
    (tmp_path / "run" / "record-1-7.json").unlink()
    own = make_rank(1, 0, outcome="running")
    view = JobView(clock)
    view.look(folder, own)
    totals = total_run(view.records(own), START, is_complete=view.is_complete)
    assert (totals.num_records, totals.is_partial) == (NUM_RANKS - 1, True)


def test_a_store_that_fails_is_tried_again_and_then_done_without(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Totals are absent while nobody knows the earlier attempts, and then marked partial."""
    folder = make_folder(tmp_path, clock, 0.0, 1)

    def refuse(self: RunFolder) -> None:
        raise StorageError("no listing")

    monkeypatch.setattr(RunFolder, "record_numbers", refuse)
    own = make_rank(1, 0, outcome="running")
    view = JobView(clock)
    for is_ready in (False, False, True):
        view.look(folder, own)
        clock.advance(10.0)
        assert view.is_ready is is_ready
    assert not view.is_complete


def test_the_totals_tell_what_a_unit_costs() -> None:
    """C107: 2 ranks × 100 s at 0.01 a second for 10 tokens and 10 steps; one currency only."""
    totals = total_run([make_rank(1, rank) for rank in range(2)], START + 100, is_complete=True)
    assert (totals.cost, totals.unit_cost["token"]) == ({"USD": "2.00"}, "0.20")
    assert "step" not in totals.unit_cost, "38 ranks that made the steps, too, have no record"
    alone = make_record(
        time_s={"compute": 100.0},
        price=make_price("36"),
        progress={"iterations": 10, "optimizer_steps": 10, "samples": 20, "tokens": 0},
    )
    assert total_run([alone], START + 100).unit_cost == {
        "sample": "0.05",
        "step": "0.10",
        "productive_step": "0.10",
    }, "C108: no tokens and no GPUs have no cost"
    euro = make_record(attempt=2, time_s={"compute": 1.0}, price=make_price("1", currency="EUR"))
    assert total_run([alone, euro], START + 100).unit_cost == {}, "C111: currencies stay apart"
