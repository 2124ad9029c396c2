"""Which data a run trains on: fingerprints of files, and attempts that differ."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import fsspec
import pytest

import costlens
from costlens.account.ledger import merge
from costlens.config import Config
from costlens.core.attempt_state import AttemptState
from costlens.core.clock import Anchor
from costlens.core.records import RankPart, RankRecord, RunPart
from costlens.errors import StorageError
from costlens.observe import dataset
from costlens.observe.dataset import DatasetProbe, fingerprint_files
from tests.log_events import capture_events
from tests.unit.account.build import START, make_record


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a folder with a data set of three files."""
    folder = tmp_path / "data"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.bin").write_bytes(bytes(range(256)) * 8192)
    (folder / "b.bin").write_bytes(b"")
    (folder / "deep" / "c.bin").write_bytes(b"c")
    return folder


def _probe(rank: int = 0, **settings: Any) -> tuple[DatasetProbe, AttemptState]:
    state = AttemptState(
        run=RunPart(id="r", name="r", costlens_version="0"),
        rank=RankPart(rank=rank, world_size=2, host_name="h", pid=1),
        anchor=Anchor(wall_ns=0, mono_ns=0),
        start_ns=0,
    )
    probe = DatasetProbe(Config(**settings), state, lambda: None)
    probe.load()
    probe.start()
    if probe._errand is not None:
        assert probe._errand.wait(20)
    probe.sample(0)
    return probe, state


def test_a_copy_has_the_same_fingerprint_and_a_changed_byte_another(
    data: Path, tmp_path: Path
) -> None:
    """Wherever it lies: on another path, or in another kind of store."""
    first = fingerprint_files([str(data)])
    assert first is not None
    assert first.startswith("blake2b:")
    copy = tmp_path / "elsewhere" / "copy"
    shutil.copytree(data, copy)
    assert fingerprint_files([str(copy)]) == first
    fs = fsspec.filesystem("memory")
    fs.put(str(data), f"/{tmp_path.name}", recursive=True)
    assert fingerprint_files([f"memory://{tmp_path.name}"]) == first
    content = bytearray((copy / "a.bin").read_bytes())
    content[1_500_000] ^= 1
    (copy / "a.bin").write_bytes(content)
    assert fingerprint_files([str(copy)]) != first


@pytest.mark.parametrize("change", ["rename", "move bytes", "add", "remove"])
def test_names_and_borders_of_files_count(data: Path, change: str) -> None:
    """The same bytes under other names, or cut elsewhere, are another data set."""
    first = fingerprint_files([str(data)])
    if change == "rename":
        (data / "a.bin").rename(data / "z.bin")
    elif change == "move bytes":
        (data / "b.bin").write_bytes((data / "deep" / "c.bin").read_bytes())
        (data / "deep" / "c.bin").write_bytes(b"")
    elif change == "add":
        (data / "new.bin").write_bytes(b"")
    else:
        (data / "b.bin").unlink()
    assert fingerprint_files([str(data)]) != first


def test_a_run_gets_the_fingerprint_of_the_files_that_were_named(data: Path) -> None:
    """It stands in the record beside the labels; the same for each run on the same data."""
    seen = []
    for _ in range(2):
        with costlens.start(dataset_files=f"{data}/*.bin,{data}/deep", summary=False) as run:
            run.id  # noqa: B018 - waits for the pipeline's begin, and so for a small data set
        record = run.finish()
        assert record is not None
        seen.append(record.run.labels()["dataset_version"])
        assert record.run.dataset_unknown is None
    assert seen[0] == seen[1]
    assert seen[0] == fingerprint_files([f"{data}/*.bin", f"{data}/deep"])


def test_only_rank_0_reads_and_a_given_version_reads_nothing(data: Path) -> None:
    """A thousand ranks do not read the data set a thousand times."""
    probe, state = _probe(rank=1, dataset_files=str(data))
    assert (probe._errand, state.run_facts) == (None, {})
    probe, _ = _probe(dataset_files=str(data), dataset_version="v7")
    assert probe._errand is None


def test_files_that_cannot_be_read_leave_it_unknown_with_one_line(tmp_path: Path) -> None:
    """Absent with the reason, and told once; training goes on."""
    with capture_events() as events:
        probe, state = _probe(dataset_files=str(tmp_path / "none.bin"))
        probe.sample(1)
    assert [event["event"] for event in events] == ["costlens.dataset.unreadable"]
    assert state.describe_run().dataset_version is None
    assert "could not be read" in (state.describe_run().dataset_unknown or "")


def test_too_much_data_is_refused_not_sampled(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded: a fingerprint of a part would be the same for two data sets."""
    monkeypatch.setattr(dataset, "MAX_FILES", 2)
    with pytest.raises(StorageError, match="3 files with"):
        fingerprint_files([str(data)])
    monkeypatch.setattr(dataset, "MAX_FILES", 3)
    monkeypatch.setattr(dataset, "MAX_BYTES", 1000)
    with pytest.raises(StorageError, match="more than a fingerprint is made of"):
        fingerprint_files([str(data)])


def test_a_run_that_ends_first_does_not_wait_for_its_data(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading is given up at the next MiB, and the version is absent with the reason."""
    monkeypatch.setattr(dataset, "_PATIENCE_S", 0.0)
    is_reading, may_go = threading.Event(), threading.Event()
    read = dataset.files.read_chunks

    def slow(file: Any) -> Any:
        for chunk in read(file):
            is_reading.set()
            may_go.wait(20)
            yield chunk

    monkeypatch.setattr(dataset.files, "read_chunks", slow)
    state = _probe(rank=1)[1]
    state.rank = state.rank.model_copy(update={"rank": 0})
    probe = DatasetProbe(Config(dataset_files=str(data)), state, lambda: None)
    probe.start()
    assert is_reading.wait(20)
    probe.sample(0)
    assert state.describe_run().dataset_unknown == "the files have not all been read yet"
    stopper = threading.Thread(target=probe.stop)
    stopper.start()
    while not probe._is_stopping:
        pass
    may_go.set()
    stopper.join(20)
    assert probe._errand is not None
    assert probe._errand.wait(20)
    assert probe._errand.result is None


def test_another_data_set_after_a_restart_is_a_warning_and_a_problem(data: Path) -> None:
    """The log says so when the attempt begins; the merged record keeps it."""
    settings: dict[str, Any] = {"run_id": "same", "dataset_files": str(data), "summary": False}
    with costlens.start(**settings) as run:
        run.id  # noqa: B018 - waits for the pipeline's begin
    (data / "b.bin").write_bytes(b"changed")
    with capture_events() as events, costlens.start(**settings) as run:
        run.id  # noqa: B018 - waits for the pipeline's begin
    told = [event for event in events if event["event"] == "costlens.dataset.changed"]
    assert len(told) == 1
    assert told[0]["run_id"] == "same"
    assert told[0]["attempt"] == 2


def _attempt(number: int, version: str | None, rank: int = 0) -> RankRecord:
    record = make_record(attempt=number, rank=rank, time_s={"compute": 1.0})
    run = record.run.model_copy(update={"dataset_version": version})
    return record.model_copy(update={"run": run})


def test_the_merged_record_names_attempts_on_other_data() -> None:
    """Neighbours that know their version are compared; one that does not is passed over."""
    records = [_attempt(1, "a"), _attempt(2, None), _attempt(3, "b"), _attempt(4, "b")]
    merged = merge(records, now=START + 1e6)
    assert [line for line in merged.problems if "dataset" in line] == [
        "attempt 3 trains on dataset version 'b', attempt 1 did on 'a'"
    ]
    alike = merge([_attempt(1, "a"), _attempt(2, "a")], now=START + 1e6)
    assert [line for line in alike.problems if "dataset" in line] == []


def test_urls_with_keys_are_not_told() -> None:
    """Law 8: what is asked for may hold a secret in its query."""
    with capture_events() as events:
        _probe(dataset_files="memory://nothing/here?sig=s3cret")
    assert events
    assert "s3cret" not in str(events)
