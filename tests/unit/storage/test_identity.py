"""Which run and attempt a process belongs to, where launchers repeat their keys."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from costlens.storage.identity import Claimant, settle_identity
from costlens.storage.run_folder import RunFolder
from costlens.storage.store import Store

NOON_S = 1_800_000_000.0
NS_PER_S = 1_000_000_000


def rank(number: int, *, after_s: float = 0.0, host: str = "host", pid: int = 7) -> Claimant:
    """Return a rank whose process started `after_s` seconds after noon and opened 5 s later."""
    born_s = NOON_S + after_s
    return Claimant(number, host, pid, int((born_s + 5) * NS_PER_S), born_s)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Return an empty store."""
    return Store(tmp_path)


def launch(store: Store, *ranks: Claimant, beats_after_s: float = 10.0) -> list[int]:
    """Return the attempts of ranks that open one after the other and write a heartbeat each."""
    attempts = []
    for claimant in ranks:
        found = settle_identity(store, None, "run", "same key", claimant)
        beat_s = (claimant.born_s or NOON_S) + beats_after_s
        record = {"attempt": {"heartbeat_time": beat_s}}
        found.folder.write_record(found.attempt, claimant.rank, json.dumps(record).encode())
        attempts.append(found.attempt)
    return attempts


def test_a_repeated_key_is_a_new_launch_for_every_rank(store: Store) -> None:
    """C026: two launches with one key are attempts 1 and 2, whichever rank comes first."""
    assert launch(store, rank(0), rank(1)) == [1, 1]
    assert launch(store, rank(1, after_s=90, pid=8), rank(0, after_s=90, pid=9)) == [2, 2]
    assert launch(store, rank(0, after_s=200, pid=1), rank(1, after_s=200, pid=2)) == [3, 3]


def test_a_container_that_starts_again_with_the_same_ids_is_a_new_launch(store: Store) -> None:
    """Containers of one name have the same host name and the same process ids every time."""
    assert launch(store, rank(0), rank(1)) == [1, 1]
    assert launch(store, rank(0, after_s=3), rank(1, after_s=3)) == [2, 2]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_a_rank_that_never_wrote_still_finds_that_its_launch_is_new(
    store: Store, order: tuple[int, ...]
) -> None:
    """Ranks 1 and 2 have no record of the first launch; its claimant had fallen silent before."""
    assert launch(store, rank(0)) == [1]
    ranks = {number: rank(number, after_s=90, pid=8 + number) for number in order}
    assert launch(store, *(ranks[number] for number in order)) == [2, 2, 2]


def test_a_claimant_that_died_before_its_first_record_is_a_witness_too(store: Store) -> None:
    """Nobody wrote a record in the first launch: the time of the claim tells that it is over."""
    assert settle_identity(store, None, "run", "same key", rank(1)).attempt == 1
    assert launch(store, rank(0, after_s=90), rank(1, after_s=90)) == [2, 2]


def test_nodes_that_come_up_one_after_the_other_are_one_launch(store: Store) -> None:
    """A rank that starts minutes later joins as long as the first one goes on writing."""
    first = settle_identity(store, None, "run", "same key", rank(0))
    late = rank(1, after_s=600, host="other")
    record = {"attempt": {"heartbeat_time": NOON_S + 595}}
    first.folder.write_record(first.attempt, 0, json.dumps(record).encode())
    assert launch(store, late) == [1]


def test_clocks_of_two_hosts_may_differ(store: Store) -> None:
    """A rank whose clock runs half a minute ahead joins the launch it belongs to."""
    assert launch(store, rank(0), rank(1, after_s=30, host="ahead")) == [1, 1]


def test_where_the_start_of_the_process_is_not_known_only_own_records_tell(store: Store) -> None:
    """Without a start time nothing is guessed."""
    unborn = dataclasses.replace(rank(1, after_s=900), born_s=None)
    assert launch(store, rank(0)) == [1]
    assert launch(store, unborn) == [1]
    assert launch(store, unborn) == [2]


def test_a_claim_or_record_that_cannot_be_read_is_no_witness(store: Store) -> None:
    """Damage does not split a launch."""
    assert launch(store, rank(0)) == [1]
    store.put("run/record-1-0.json", b"{}")
    claim = json.loads(store.read("run/attempts/0001.json") or b"")
    del claim["wall_ns"]
    store.put("run/attempts/0001.json", json.dumps(claim).encode())
    assert launch(store, rank(1, after_s=900)) == [1]


def train(store: Store, start: str, *outcomes: str, name: str = "run-77") -> list[str]:
    """Return `folder/attempt` of processes that a job's script starts one after the other.

    Args:
        store: Holds the folders.
        start: Which start of the job this is.
        outcomes: How each of them ended.
        name: The id that the job gives them all.
    """
    found = []
    for number, outcome in enumerate(outcomes):
        claimant = dataclasses.replace(rank(0, pid=100 + number), job_start=start)
        identity = settle_identity(store, None, name, f"{start}/{number}", claimant)
        record = {"attempt": {"heartbeat_time": NOON_S, "outcome": outcome}}
        identity.folder.write_record(identity.attempt, 0, json.dumps(record).encode())
        found.append(f"{identity.run_id}/{identity.attempt}")
    return found


def test_trainings_of_one_job_are_runs_and_a_retry_is_an_attempt(store: Store) -> None:
    """What is completed is not gone on with; what failed is tried again."""
    told = train(store, "0", "completed", "failed", "failed", "completed", "stopped_early", "lost")
    assert told == [
        "run-77/1",
        "run-77-2/1",
        "run-77-2/2",
        "run-77-2/3",
        "run-77-3/1",
        "run-77-4/1",
    ]


def test_a_job_that_is_started_again_makes_its_trainings_again_in_order(store: Store) -> None:
    """The second training was preempted: each goes on with its own run, not with the other's."""
    assert train(store, "0", "completed", "preempted") == ["run-77/1", "run-77-2/1"]
    assert train(store, "1", "completed", "completed") == ["run-77/2", "run-77-2/2"]


def test_a_late_rank_joins_a_training_that_is_completed_already(store: Store) -> None:
    """Rank 0 was done before rank 1 had settled: both are one launch."""
    assert train(store, "0", "completed") == ["run-77/1"]
    late = dataclasses.replace(rank(1), job_start="0")
    found = settle_identity(store, None, "run-77", "0/0", late)
    assert (found.run_id, found.attempt) == ("run-77", 1)


def test_an_id_that_was_given_is_one_run_for_ever(store: Store) -> None:
    """Only the job's own id may stand for several trainings."""
    for attempt in (1, 2):
        found = settle_identity(store, None, "mine", f"key {attempt}", rank(0))
        record = {"attempt": {"heartbeat_time": NOON_S, "outcome": "completed"}}
        found.folder.write_record(found.attempt, 0, json.dumps(record).encode())
        assert (found.run_id, found.attempt) == ("mine", attempt)


def beside(store: Store, pid: int, alive: set[int], launch: str) -> str:
    """Return `folder/attempt` of a process that trains alone in job 77, beside those that live."""
    claimant = dataclasses.replace(
        rank(0, pid=pid), job_start="0", lives=lambda claim: claim["pid"] in alive - {pid}
    )
    found = settle_identity(store, None, "run-77", launch, claimant)
    return f"{found.run_id}/{found.attempt}"


def test_processes_that_train_side_by_side_in_a_job_are_runs_of_their_own(store: Store) -> None:
    """A sweep within one job: none is an attempt of another; one that failed is tried again."""
    alive = {1, 2, 3}
    told = [beside(store, pid, alive, f"launch {pid}") for pid in (1, 2, 3)]
    assert told == ["run-77/1", "run-77-2/1", "run-77-3/1"]
    alive.remove(2)
    assert beside(store, 4, alive, "launch 4") == "run-77-2/2"


def test_processes_that_start_at_once_part_and_leave_no_claim_behind(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All have looked before any has claimed: who comes second takes his claim back."""
    alive = {1, 2, 3}
    look = RunFolder.attempts
    blind = [2, 3]

    def attempts(self: RunFolder) -> list[int]:
        if blind and self.run_id == "run-77":
            seen = look(self)
            if seen and blind.pop():
                return []
            return seen
        return look(self)

    assert beside(store, 1, alive, "launch 1") == "run-77/1"
    monkeypatch.setattr(RunFolder, "attempts", attempts)
    assert beside(store, 2, alive, "launch 2") == "run-77-2/1"
    assert beside(store, 3, alive, "launch 3") == "run-77-3/1"
    monkeypatch.undo()
    assert RunFolder(store, "run-77").attempts() == [1]


def test_outside_a_job_processes_side_by_side_are_left_alone(store: Store) -> None:
    """An id that was given holds them all, as before."""
    claimants = [dataclasses.replace(rank(0, pid=pid)) for pid in (1, 2)]
    found = [settle_identity(store, None, "mine", f"l{c.pid}", c) for c in claimants]
    assert [(f.run_id, f.attempt) for f in found] == [("mine", 1), ("mine", 2)]
