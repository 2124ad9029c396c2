"""What is asked of a running run, over real stores and on a fake wall clock."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path

import pytest

from costlens.core.log import configure_log
from costlens.core.telemetry_records import Detail, DetailPart
from costlens.observe.tuning import Tuning
from costlens.storage.run_folder import RunFolder
from costlens.storage.store import Store
from tests.unit.export.rehearsal import Rehearsal

NOW = 1_700_000_000.0


class Tuned:
    """One rank whose control file is looked at when the test says so."""

    def __init__(self, url: str, rank: int = 0) -> None:
        self.folder = RunFolder(Store(url), "run-a")
        self.run = Rehearsal(rank, 4)
        self.now = NOW
        self.tuning = Tuning(self.run.state, self.run.totals, lambda: self.now)

    def ask(self, **fields: object) -> None:
        """Write a control file."""
        self.folder.write_control(json.dumps(fields).encode())

    def look(self) -> DetailPart:
        """Close a window and return what is in force from then on."""
        self.tuning.look(self.folder)
        self.run.look()
        assert self.run.totals.detail is self.run.state.detail.name
        return self.run.state.detail


@pytest.fixture(params=["local", "memory"])
def tuned(request: pytest.FixtureRequest, tmp_path: Path) -> Tuned:
    """Return a rank with a run folder."""
    configure_log("info", "json")
    is_local = request.param == "local"
    return Tuned(str(tmp_path) if is_local else f"memory://{uuid.uuid4().hex}")


def _events(capsys: pytest.CaptureFixture[str]) -> list[dict]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_what_is_asked_is_in_force_until_it_ends(
    tuned: Tuned, capsys: pytest.CaptureFixture[str]
) -> None:
    """One event when it begins and one when it is over, and none while nothing changes."""
    assert tuned.look() == DetailPart(name=Detail.NORMAL)
    tuned.ask(detail="steps", until=NOW + 600)
    for _ in range(3):
        assert tuned.look() == DetailPart(name=Detail.STEPS, until=NOW + 600)
    tuned.now += 600
    for _ in range(3):
        assert tuned.look() == DetailPart(name=Detail.NORMAL)
    begun, over = _events(capsys)
    assert {begun["event"], over["event"]} == {"costlens.detail"}
    assert (begun["detail"], begun["reason"], begun["until"]) == ("steps", "asked", NOW + 600)
    assert "2023-11-14 22:23:20 UTC" in begun["message"]
    assert (over["detail"], over["reason"]) == ("normal", "over")
    assert "until" not in over


def test_the_newest_request_holds(tuned: Tuned, capsys: pytest.CaptureFixture[str]) -> None:
    """A later file replaces the one before as a whole, also to end it early or to go on longer."""
    for fields in (
        {"detail": "steps", "until": NOW + 600},
        {"detail": "steps", "until": NOW + 900},
        {"detail": "off", "until": NOW + 900},
        {"detail": "normal"},
    ):
        tuned.ask(**fields)
        assert tuned.look().model_dump(mode="json") == {
            "name": fields["detail"],
            "until": fields.get("until"),
        }
    assert [event["reason"] for event in _events(capsys)] == ["asked"] * 4


def test_ranks_that_are_not_named_stay_as_they_are(tmp_path: Path) -> None:
    """Of four ranks the two that are named follow."""
    ranks = [Tuned(str(tmp_path), rank) for rank in range(4)]
    ranks[0].ask(detail="off", until=NOW + 60, ranks=[1, 3])
    assert [rank.look().name.value for rank in ranks] == ["normal", "off", "normal", "off"]


def test_each_rank_ends_by_its_own_clock(tmp_path: Path) -> None:
    """Hosts whose clocks differ by a minute end a minute apart."""
    early, late = Tuned(str(tmp_path), 0), Tuned(str(tmp_path), 1)
    late.now -= 60
    early.ask(detail="steps", until=NOW)
    assert [early.look().name.value, late.look().name.value] == ["normal", "steps"]


@pytest.mark.parametrize("data", [b'{"detail": "of', b"\0" * 10_000_000, b'{"detail": "all"}'])
def test_hostile_content_changes_nothing_and_is_told_once(
    tuned: Tuned, data: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was asked before goes on until it ends; each look is counted, the first one told."""
    tuned.ask(detail="steps", until=NOW + 600)
    tuned.look()
    tuned.folder.write_control(data)
    for _ in range(3):
        assert tuned.look().name is Detail.STEPS
    tuned.now += 600
    assert tuned.look().name is Detail.NORMAL
    assert tuned.tuning.num_failures == 4
    events = [(event["event"], event.get("reason")) for event in _events(capsys)]
    assert events == [
        ("costlens.detail", "asked"),
        ("costlens.control.failed", "refused"),
        ("costlens.detail", "over"),
    ]


def test_a_file_that_cannot_be_read_harms_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pipe in its place would block whoever opens it: it is not read, but counted and told."""
    configure_log("info", "json")
    tuned = Tuned(str(tmp_path))
    (tmp_path / "run-a").mkdir()
    os.mkfifo(tmp_path / "run-a" / "control.json")
    for _ in range(3):
        assert tuned.look().name is Detail.NORMAL
    assert tuned.tuning.num_failures == 3
    (event,) = _events(capsys)
    assert (event["event"], event["reason"]) == ("costlens.control.failed", "unreadable")
