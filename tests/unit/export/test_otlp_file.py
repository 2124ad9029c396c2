"""Segments of telemetry: when they close, what a kill leaves, what goes when there is too much."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from costlens.errors import StorageError
from costlens.export.otlp_file import SegmentWriter
from costlens.storage.identity import Identity
from costlens.storage.run_folder import RunFolder
from costlens.storage.segments import split_lines
from costlens.storage.store import Store
from costlens.storage.telemetry_folder import Segment
from costlens.testing import FakeClock

MIB = 1024 * 1024


def line(text: str = "x", num_bytes: int = 0) -> bytes:
    """Return a line with one log record, padded to a size."""
    record = {"timeUnixNano": "1", "body": {"stringValue": text}}
    document = {"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}
    data = json.dumps(document).encode()
    return data.replace(b'"stringValue": "', b'"stringValue": "' + b"." * (num_bytes - len(data)))


class Rank:
    """A rank that writes into a folder which others look into."""

    def __init__(
        self, root: Path, *, attempt: int = 1, rank: int = 0, max_bytes: int = 64 * MIB
    ) -> None:
        self.clock = FakeClock()
        self.store = Store(root)
        self.folder = RunFolder(self.store, "run").telemetry
        identity = Identity("run", attempt, "key", RunFolder(self.store, "run"))
        self.writer = SegmentWriter(lambda: identity, rank, max_bytes=max_bytes, clock=self.clock)

    def lines(self, signal: str = "metrics") -> list[bytes]:
        """Return the lines of all closed segments of a signal, in order."""
        segments = sorted(s for s in self.folder.list().closed if s.signal == signal)
        return [one for s in segments for one in split_lines(self.folder.read(s) or b"")]


def test_lines_are_kept_in_order(tmp_path: Path) -> None:
    """What was given comes back, each signal in files of its own, under attempt and rank."""
    rank = Rank(tmp_path, attempt=2, rank=5)
    for number in range(3):
        rank.writer.add("metrics", line(f"m{number}"))
        rank.writer.add("traces", line(f"t{number}"))
    rank.writer.close()
    assert set(rank.folder.list().closed) == {
        Segment("metrics", 2, 5, 0),
        Segment("traces", 2, 5, 0),
    }
    assert rank.lines("metrics") == [line(f"m{number}") for number in range(3)]
    assert rank.lines("traces") == [line(f"t{number}") for number in range(3)]


def test_a_segment_closes_at_a_mebibyte(tmp_path: Path) -> None:
    """No segment of usual lines is larger than 1 MiB, and none is closed long before."""
    rank = Rank(tmp_path)
    for _ in range(25):
        rank.writer.add("metrics", line(num_bytes=100_000))
    assert list(rank.folder.list().closed.values()) == [1_000_010, 1_000_010]
    rank.writer.close()
    assert len(rank.lines()) == 25


def test_a_segment_closes_after_ten_minutes(tmp_path: Path) -> None:
    """A quiet signal's segment is closed too, when any other line comes."""
    rank = Rank(tmp_path)
    rank.writer.add("logs", line())
    rank.clock.advance(599)
    rank.writer.add("metrics", line())
    assert rank.folder.list().closed == {}
    rank.clock.advance(1)
    rank.writer.add("metrics", line())
    assert set(rank.folder.list().closed) == {Segment("logs", 1, 0, 0)}


def test_a_line_longer_than_a_segment_is_kept(tmp_path: Path) -> None:
    """It is a segment of its own."""
    rank = Rank(tmp_path)
    for num_bytes in (100, 2 * MIB, 100):
        rank.writer.add("logs", line(num_bytes=num_bytes))
    rank.writer.close()
    assert len(rank.lines("logs")) == 3
    assert len(rank.folder.list().closed) == 3


def test_a_kill_costs_a_minute(tmp_path: Path) -> None:
    """The next attempt closes what the killed one saved: all but its last minute."""
    killed = Rank(tmp_path)
    for number in range(20):  # every ten seconds
        killed.writer.add("metrics", line(str(number)))
        killed.clock.advance(10)
    after = Rank(tmp_path, attempt=2)
    after.writer.add("metrics", line("after"))
    after.writer.close()
    assert after.lines() == [*(line(str(number)) for number in range(18)), line("after")]
    assert after.folder.list().open == frozenset()


def test_another_ranks_open_segment_is_left_alone(tmp_path: Path) -> None:
    """A rank takes over its own earlier lives only: the others may be alive."""
    other = Rank(tmp_path, rank=1)
    other.writer.add("metrics", line())
    other.clock.advance(60)
    other.writer.add("metrics", line())
    Rank(tmp_path, attempt=2, rank=0).writer.add("metrics", line())
    assert other.folder.list().open == {Segment("metrics", 1, 1, 0)}


def test_a_rank_held_for_dead_doubles_nothing(tmp_path: Path) -> None:
    """A replay closed its open segment: it goes on with the lines that are not in it."""
    rank = Rank(tmp_path)
    rank.writer.add("metrics", line("a"))
    rank.clock.advance(60)
    rank.writer.add("metrics", line("b"))
    rank.folder.adopt(Segment("metrics", 1, 0, 0))
    assert rank.lines() == [line("a")]
    rank.writer.close()
    assert rank.lines() == [line("a"), line("b")]


def test_a_second_opening_goes_on_with_the_numbers(tmp_path: Path) -> None:
    """Another writer of the same rank and attempt (a second fit) takes the next number."""
    for text in ("a", "b"):
        rank = Rank(tmp_path)
        rank.writer.add("metrics", line(text))
        rank.writer.close()
    assert rank.lines() == [line("a"), line("b")]


def test_the_oldest_go_first(tmp_path: Path) -> None:
    """Above the limit the newest segments stay, and every item that went is counted."""
    rank = Rank(tmp_path, max_bytes=3 * MIB)
    for number in range(100):
        rank.writer.add("metrics", line(str(number), num_bytes=100_000))
    rank.writer.close()
    kept = rank.lines()
    assert sum(rank.folder.list().closed.values()) <= 3 * MIB
    assert kept == [line(str(n), num_bytes=100_000) for n in range(100 - len(kept), 100)]
    assert rank.writer.num_items_deleted == 100 - len(kept)


def test_metrics_do_not_displace_traces(tmp_path: Path) -> None:
    """The signal that takes most gives up its oldest: the few early spans of a run stay."""
    rank = Rank(tmp_path, max_bytes=2 * MIB)
    rank.writer.add("traces", line("the run marker"))
    rank.clock.advance(600)
    for _ in range(60):
        rank.writer.add("metrics", line(num_bytes=100_000))
    rank.writer.close()
    assert rank.lines("traces") == [line("the run marker")]
    assert rank.writer.num_items_deleted >= 40


def test_the_limit_holds_over_attempts(tmp_path: Path) -> None:
    """What earlier attempts of this rank left counts, and goes first; other ranks' does not."""
    for attempt, rank_number in ((1, 0), (1, 1), (2, 0)):
        rank = Rank(tmp_path, attempt=attempt, rank=rank_number, max_bytes=3 * MIB // 2)
        for _ in range(10):
            rank.writer.add("metrics", line(num_bytes=100_000))
        rank.writer.close()
    assert set(rank.folder.list().closed) == {
        Segment("metrics", 1, 1, 0),
        Segment("metrics", 2, 0, 0),
    }
    assert rank.writer.num_items_deleted == 10


def test_a_refused_line_was_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the disk is full lines are refused and memory does not grow; then nothing is doubled.

    The line that was refused may be given again: it is then there once.
    """
    rank = Rank(tmp_path)
    for number in range(10):
        rank.writer.add("metrics", line(str(number), num_bytes=100_000))

    def refuse(*_args: object, **_options: object) -> bool:
        error = StorageError("no space")
        error.errno = errno.ENOSPC
        raise error

    with monkeypatch.context() as full:
        full.setattr(Store, "create", refuse)
        for _ in range(50):
            with pytest.raises(StorageError, match="no space"):
                rank.writer.add("metrics", line("10", num_bytes=100_000))
        with pytest.raises(StorageError, match="no space"):
            rank.writer.close()
        assert sum(part.num_bytes for part in rank.writer._parts.values()) <= MIB
    rank.writer.add("metrics", line("10", num_bytes=100_000))
    rank.writer.close()
    assert rank.lines() == [line(str(number), num_bytes=100_000) for number in range(11)]


def test_without_an_identity_nothing_is_taken(tmp_path: Path) -> None:
    """A run folder that could not be settled refuses, in words that say so."""
    writer = SegmentWriter(lambda: None, 0, max_bytes=MIB)
    with pytest.raises(StorageError, match="identity"):
        writer.add("metrics", line())
    assert list(tmp_path.iterdir()) == []


def test_nothing_to_write_writes_nothing(tmp_path: Path) -> None:
    """A run without telemetry has no empty segments."""
    rank = Rank(tmp_path)
    rank.writer.close()
    assert list(tmp_path.iterdir()) == []
