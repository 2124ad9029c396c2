"""Windows read from segments and records."""

from __future__ import annotations

from pathlib import Path

from costlens.core.records import RankRecord
from costlens.export.page.windows import count_ticks, read_history
from costlens.export.record import read_ranks
from costlens.storage.run_folder import RunFolder
from tests.made_runs import make_window, write_run
from tests.unit.account.build import START


def _records(folder: RunFolder) -> list[RankRecord]:
    records, problems = read_ranks(folder, START)
    assert problems == []
    return records


def test_every_window_counts_once(tmp_path: Path) -> None:
    """Segments and the newest 60 of the record overlap; together they are the whole run."""
    folder = write_run(tmp_path, num_windows=250)
    history = read_history(folder, _records(folder))
    assert history.num_windows == history.num_expected == 250
    assert [column.num_windows for column in history.columns] == [1] * 250
    assert sum(c.counts["iterations"] for c in history.columns) == 25_000
    assert history.problems == []


def test_a_live_run_is_read_to_its_newest_window(tmp_path: Path) -> None:
    """What no segment holds yet stands in the record."""
    folder = write_run(tmp_path, num_windows=85, outcome="running")
    history = read_history(folder, _records(folder))
    assert history.num_windows == 85
    assert history.columns[-1].end_s == START + 850


def test_a_killed_run_may_have_no_segment_at_all(tmp_path: Path) -> None:
    """A run that was killed in its first minutes has windows in its record only."""
    folder = write_run(tmp_path, num_windows=7, outcome="running")
    assert folder.read_segments(1, 0) is not None
    assert [*folder.read_segments(1, 0)] == []
    assert read_history(folder, _records(folder)).num_windows == 7


def test_a_run_without_a_window_has_no_columns(tmp_path: Path) -> None:
    """Before the first window has closed there is nothing to draw."""
    folder = write_run(tmp_path, num_windows=0, outcome="running")
    history = read_history(folder, _records(folder))
    assert (history.columns, history.num_windows, history.ranks) == ([], 0, [0])


def test_all_ranks_are_read_where_they_are_few(tmp_path: Path) -> None:
    """Times are sums over ranks, in the columns of the first."""
    folder = write_run(tmp_path, num_windows=20, num_ranks=4)
    history = read_history(folder, _records(folder))
    assert history.ranks == [0, 1, 2, 3]
    assert history.num_windows == 80
    assert len(history.columns) == 20
    assert {column.num_windows for column in history.columns} == {4}


def test_of_very_many_windows_whole_ranks_are_left_out(tmp_path: Path) -> None:
    """The first rank of each attempt always is read, others as long as all of theirs fit."""
    folder = write_run(tmp_path, num_windows=10, num_ranks=5, num_attempts=2)
    records = _records(folder)
    history = read_history(folder, records, max_windows=60)
    assert (history.ranks, history.num_ranks) == ([0, 1, 2], 5)
    assert history.num_windows == 60
    history = read_history(folder, records, max_windows=1)
    assert (history.ranks, history.num_windows) == ([0], 20)


def test_the_first_rank_may_have_left_nothing(tmp_path: Path) -> None:
    """Where rank 0 has closed no window the next one sets the columns."""
    folder = write_run(tmp_path, num_windows=5, num_ranks=2)
    records = [
        record.model_copy(
            update={
                "windows": [],
                "telemetry": record.telemetry.model_copy(update={"num_windows": 0}),
            }
        )
        if record.rank.rank == 0
        else record
        for record in _records(folder)
    ]
    history = read_history(RunFolder(folder._store, "another"), records)
    assert history.num_windows == 5
    assert len(history.columns) == 5


def test_lines_that_are_no_windows_are_counted_and_left_out(tmp_path: Path) -> None:
    """A damaged segment hides no other, and the page says what is missing."""
    folder = write_run(tmp_path, num_windows=180)
    bad = [
        b"{",
        b'{"index": 0}',
        make_window(1, START).model_copy(update={"end_time": START - 5}).model_dump_json().encode(),
        make_window(2, START).model_copy(update={"phase_ns": {"x": -1}}).model_dump_json().encode(),
        make_window(3, START)
        .model_copy(update={"phase_ns": {"x": 10**30}})
        .model_dump_json()
        .encode(),
        make_window(4, START).model_copy(update={"start_time": 1e300}).model_dump_json().encode(),
    ]
    place = tmp_path / folder.run_id / "segments" / "windows-1-0-000001.jsonl"
    place.write_bytes(b"".join(line + b"\n" for line in bad))
    history = read_history(folder, _records(folder))
    assert history.problems == [f"{len(bad)} windows are not readable and left out"]
    assert history.num_windows == 120
    assert history.num_expected == 180


def test_a_segment_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """The rest of the run is drawn all the same."""
    folder = write_run(tmp_path, num_windows=120)
    place = tmp_path / folder.run_id / "segments" / "windows-1-0-000001.jsonl"
    place.unlink()
    place.mkdir()
    history = read_history(folder, _records(folder))
    assert history.num_windows == 120  # the newest 60 stand in the record as well
    assert len(history.problems) == 1 or history.problems == []


def test_progress_adds_up_to_what_was_foretold(tmp_path: Path) -> None:
    """A bar that is driven by it ends where it said it would."""
    folder = write_run(tmp_path, num_windows=1300)
    seen: list[None] = []
    records = _records(folder)
    read_history(folder, records, lambda: seen.append(None))
    assert len(seen) == count_ticks(records) == 2
