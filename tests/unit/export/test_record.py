"""The record on disk: what a rank writes, and what a reader makes of it."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costlens.core.clock import NS_PER_S, Anchor
from costlens.core.device_records import GpuPart
from costlens.core.phases import NAMES, NUM_PHASES
from costlens.core.quality import Quality, Summary
from costlens.core.records import RankRecord
from costlens.core.snapshot import Snapshot
from costlens.core.training_records import WindowPart
from costlens.core.window import Histogram, Window
from costlens.errors import RecordError, StorageError
from costlens.export.record import RecordExporter, make_window_part, read_run
from costlens.storage.run_folder import MAX_RECORD_BYTES, RunFolder
from costlens.storage.store import Store
from tests.unit.account.build import START, make_iteration_time, make_record

WINDOW_NS = 10 * NS_PER_S
NAMES_OF_QUALITY = [f"val_loss/dataset_{number}" for number in range(16)]


ITERATION_TIME = make_iteration_time(*(1.01**n / 1000 for n in range(1000)))


def _snapshot(index: int, *, is_last: bool = False) -> Snapshot:
    """Return the close of window ``index`` of a busy rank: all phases and 16 quality names."""
    start_ns = index * WINDOW_NS
    counts = ("iterations", "micro_batches", "optimizer_steps", "samples", "slots", "tokens")
    window = Window(
        index=index,
        start_ns=start_ns,
        end_ns=start_ns + WINDOW_NS,
        phase_ns=(WINDOW_NS // NUM_PHASES,) * NUM_PHASES,
        counts=dict.fromkeys(counts, 1_234_567),
        num_iterations=100,
        iteration_sum_ns=9 * NS_PER_S,
        iteration_max_ns=NS_PER_S // 7,
        kept=(),
    )
    seen = {name: Summary(last=2.345678 / 3, num_values=100) for name in NAMES_OF_QUALITY}
    elapsed_s = (index + 1) * 10.0
    record = make_record(
        rank=3,
        time_s=dict.fromkeys(NAMES, elapsed_s / NUM_PHASES),
        outcome="completed" if is_last else "running",
        iteration_time=ITERATION_TIME,
    )
    return Snapshot(
        record=record,
        window=window,
        histogram=Histogram(),
        quality=Quality(seen, seen),
        alarms=(),
        anchor=Anchor(wall_ns=int(START * NS_PER_S), mono_ns=0),
        settled_ns=(0,) * NUM_PHASES,
        is_last=is_last,
    )


class BrokenFolder(RunFolder):
    """A real folder that refuses writes while ``is_broken`` is set, as a full disk does."""

    is_broken = True

    def write_record(self, attempt: int, rank: int, data: bytes) -> None:
        """Refuse, or write."""
        self._refuse()
        super().write_record(attempt, rank, data)

    def append_segment(self, attempt: int, rank: int, n: int, lines: list[bytes]) -> None:
        """Refuse, or write."""
        self._refuse()
        super().append_segment(attempt, rank, n, lines)

    def _refuse(self) -> None:
        if self.is_broken:
            error = StorageError("no space left")
            error.errno = errno.ENOSPC
            raise error


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """Return the folder of a run in a local store."""
    return RunFolder(Store(tmp_path), "tiny-1")


def _read(folder: RunFolder) -> RankRecord:
    data = folder.read_record(1, 3)
    assert data is not None
    return RankRecord.model_validate_json(data)


def test_a_run_is_on_disk_before_its_first_window(folder: RunFolder) -> None:
    """The first look writes a record, so that a run that hangs in start-up can be seen."""
    RecordExporter(lambda: folder).start(_snapshot(0))
    record = _read(folder)
    assert (record.attempt.outcome.value, record.windows) == ("running", [])


def test_each_heartbeat_replaces_the_record_and_keeps_the_newest_windows(folder: RunFolder) -> None:
    """After 75 windows the record holds the last 60 of them and the rest is in a segment."""
    exporter = RecordExporter(lambda: folder)
    for index in range(75):
        exporter.export(_snapshot(index))
    record = _read(folder)
    assert [window.index for window in record.windows] == list(range(15, 75))
    assert record.telemetry.num_segments == exporter.num_segments == 1
    segment = [WindowPart.model_validate_json(line) for line in folder.read_segments(1, 3)]
    assert [window.index for window in segment] == list(range(60))
    assert segment[15] == record.windows[0]


def test_a_window_tells_how_busy_the_devices_were_in_it(folder: RunFolder) -> None:
    """Records hold sums since the attempt began; each window has the share of its own time."""
    exporter = RecordExporter(lambda: folder)
    for index, busy_s in enumerate((9.0, 9.5, 19.5)):
        snapshot = _snapshot(index, is_last=index == 2)
        gpu = GpuPart(uuid="a", busy_s=busy_s, utilization_s=10.0 * (index + 1))
        record = snapshot.record.model_copy(update={"gpus": [gpu]})
        exporter.export(replace(snapshot, record=record))
    windows = [WindowPart.model_validate_json(line) for line in folder.read_segments(1, 3)]
    told = [window.use.gpu_utilization for window in windows if window.use is not None]
    assert told == [0.9, 0.05, 1.0]
    assert b"null" not in b"".join(folder.read_segments(1, 3))


def test_nothing_is_left_in_memory_when_the_attempt_ends(folder: RunFolder) -> None:
    """The last snapshot closes a shorter segment; a second fit of the run writes the next one."""
    exporter = RecordExporter(lambda: folder)
    for index in range(70):
        exporter.export(_snapshot(index, is_last=index in {4, 69}))
        if index == 4:
            exporter.start(_snapshot(5))
    lines = [json.loads(line)["index"] for line in folder.read_segments(1, 3)]
    assert lines == list(range(70))
    assert exporter.num_segments == 3
    assert _read(folder).telemetry.num_segments == 3


def test_the_record_does_not_grow_with_the_run(tmp_path: Path) -> None:
    """After 100 and after 100 000 windows it has the same size within 1 %, far below 256 KiB."""
    sizes = []

    class Counting(RunFolder):
        def write_record(self, attempt: int, rank: int, data: bytes) -> None:
            sizes.append(len(data))

        def append_segment(self, attempt: int, rank: int, n: int, lines: list[bytes]) -> None:
            assert len(lines) == 60

    exporter = RecordExporter(lambda: Counting(Store(tmp_path), "tiny-1"))
    # The middle of the run is the same again and again; its end has the largest numbers.
    for index in (*range(2000), *range(99_900, 100_000)):
        exporter.export(_snapshot(index))
    assert sizes[-1] == pytest.approx(sizes[99], rel=0.01)
    assert max(sizes) < MAX_RECORD_BYTES / 2
    assert exporter.num_segments == 2100 // 60, "what has left the record is in segments"


def test_a_record_that_would_be_too_large_gives_up_windows(folder: RunFolder) -> None:
    """Absurdly long metric names cannot make the heartbeat fail; the windows are in segments."""
    huge = _snapshot(0)
    seen = {"x" * 10_000: Summary(last=1.0)}
    exporter = RecordExporter(lambda: folder)
    for _ in range(60):
        exporter.export(
            Snapshot(
                huge.record,
                huge.window,
                huge.histogram,
                Quality(seen, seen),
                (),
                huge.anchor,
                huge.settled_ns,
            )
        )
    assert exporter.num_failures == 0
    assert 0 < len(_read(folder).windows) < 60
    assert len(list(folder.read_segments(1, 3))) == 60


def test_a_full_disk_is_counted_and_made_up_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is raised while writing fails, and no window is missing once it works again."""
    folder = BrokenFolder(Store(tmp_path), "tiny-1")
    exporter = RecordExporter(lambda: folder)
    for index in range(65):
        exporter.export(_snapshot(index))
    assert exporter.num_failures == 65 + 6, "each record, and each try to close the first segment"
    assert folder.read_record(1, 3) is None
    folder.is_broken = False
    exporter.export(_snapshot(65, is_last=True))
    assert [json.loads(line)["index"] for line in folder.read_segments(1, 3)] == list(range(66))
    assert _read(folder).telemetry.record_failures == 71
    told = [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()]
    assert told == ["costlens.record.failed", "costlens.record.recovered"]


def test_finish_tries_once_more_unless_time_is_up(tmp_path: Path) -> None:
    """A last record that failed is written at the end, but never after the deadline."""
    folder, now_ns = BrokenFolder(Store(tmp_path), "tiny-1"), 100
    exporter = RecordExporter(lambda: folder, clock=lambda: now_ns)
    exporter.export(_snapshot(0, is_last=True))
    folder.is_broken = False
    exporter.finish(deadline_ns=100)
    assert folder.read_record(1, 3) is None
    exporter.finish(deadline_ns=101)
    assert _read(folder).attempt.outcome.value == "completed"
    assert len(list(folder.read_segments(1, 3))) == 1


def test_memory_is_bounded_while_nothing_can_be_written(tmp_path: Path) -> None:
    """A folder gone for hours costs at most ten segments of windows; the loss is counted."""
    folder = BrokenFolder(Store(tmp_path), "tiny-1")
    exporter = RecordExporter(lambda: folder)
    snapshot = _snapshot(0)
    for _ in range(700):
        exporter.export(snapshot)
    folder.is_broken = False
    exporter.export(_snapshot(1, is_last=True))
    assert len(list(folder.read_segments(1, 3))) == 600


def test_a_run_without_identity_goes_on_without_a_record() -> None:
    """When no folder could be claimed, each heartbeat counts and none raises."""
    exporter = RecordExporter(lambda: None)
    exporter.start(_snapshot(0))
    exporter.export(_snapshot(0))
    assert exporter.num_failures == 4


@given(index=st.integers(0, 10**6))
def test_a_window_keeps_its_place_in_wall_time(index: int) -> None:
    """Wall times are the anchor plus monotonic differences, and the phases fill the window."""
    part = make_window_part(_snapshot(index))
    assert part.start_time == pytest.approx(START + 10 * index, abs=1e-3)
    assert part.end_time - part.start_time == pytest.approx(10.0, abs=1e-3)
    assert part.iteration_mean_s == 0.09
    assert sum(part.phase_ns.values()) == WINDOW_NS // NUM_PHASES * NUM_PHASES


def test_what_two_ranks_wrote_is_read_as_one_run(folder: RunFolder) -> None:
    """The reader merges the records, tells of unreadable ones and of launches that left none."""
    folder.claim_attempt("first", {})
    folder.claim_attempt("second", {})
    for rank in (0, 1):
        record = make_record(2, rank, world_size=2, time_s={"compute": 4.0})
        folder.write_record(2, rank, record.model_dump_json().encode())
    folder.write_record(2, 2, b"{half")
    run = read_run(folder, now=START + 2000.0)
    assert run.time_s["compute"] == 8.0
    assert run.problems[0] == "attempt 1 was launched and left no record"
    assert "record-2-2.json" in run.problems[1]


def test_reading_a_run_without_records_says_so(folder: RunFolder) -> None:
    """A claim alone is not a run that can be reported."""
    folder.claim_attempt("first", {})
    with pytest.raises(RecordError, match="no readable record"):
        read_run(folder, now=START)
