"""Readers that ask a witness whether the process of a live record is still there."""

from __future__ import annotations

from pathlib import Path

import pytest

from costlens.core.records import Outcome, RankRecord
from costlens.core.trouble_records import LastWordsPart
from costlens.export.record import read_run
from costlens.storage.run_folder import RunFolder
from costlens.storage.store import Store
from tests.unit.account.build import START, make_record


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """Return a run of two ranks: one has completed, one seems to run."""
    folder = RunFolder(Store(tmp_path), "run-1")
    folder.claim_attempt("first", {})
    for rank, outcome in enumerate(("completed", "running")):
        record = make_record(1, rank, outcome=outcome, world_size=2, time_s={"compute": 4.0})
        folder.write_record(1, rank, record.model_dump_json().encode())
    return folder


def test_only_live_records_are_asked_about(folder: RunFolder) -> None:
    """Whoever said how it ended needs no witness."""
    asked: list[int] = []

    def witness(record: RankRecord) -> LastWordsPart | None:
        asked.append(record.rank.rank)
        return LastWordsPart(oom_kills=2)

    run = read_run(folder, START + 5, witness)
    assert asked == [1]
    assert [rank.outcome for rank in run.ranks] == [Outcome.COMPLETED, Outcome.LOST]
    assert run.attempts[0].last_words == LastWordsPart(oom_kills=2)


def test_without_a_word_of_the_witness_the_rank_runs(folder: RunFolder) -> None:
    """None means that the process may live."""
    run = read_run(folder, START + 5, lambda record: None)
    assert run.attempts[0].outcome is Outcome.RUNNING


def test_last_words_said_while_the_witness_looks_are_heard(folder: RunFolder) -> None:
    """A process may close its record and end between the reading and the asking."""

    def witness(record: RankRecord) -> LastWordsPart | None:
        last = make_record(1, 1, outcome="stopped_early", world_size=2, time_s={"compute": 9.0})
        folder.write_record(1, 1, last.model_dump_json().encode())
        return LastWordsPart()

    run = read_run(folder, START + 5, witness)
    assert run.attempts[0].outcome is Outcome.STOPPED_EARLY
    assert run.time_s["compute"] == 13.0
