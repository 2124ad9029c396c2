"""The telemetry part of a run folder: what is closed, open and sent."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest

from costlens.errors import StorageError
from costlens.storage.run_folder import RunFolder
from costlens.storage.segments import join_lines, split_lines
from costlens.storage.store import Store
from costlens.storage.telemetry_folder import Segment, TelemetryFolder

KEY = "ab12cd34ab12cd34"
FIRST = Segment("metrics", 1, 0, 0)


@pytest.fixture(params=["local", "memory"], name="store")
def _store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return Store(tmp_path if request.param == "local" else f"memory://{uuid.uuid4().hex}")


@pytest.fixture(name="folder")
def _folder(store: Store) -> TelemetryFolder:
    return RunFolder(store, "run").telemetry


def test_a_segment_lies_where_its_name_says(store: Store, folder: TelemetryFolder) -> None:
    """The layout is public: ``telemetry/<signal>-<attempt>-<rank>-<number>.jsonl``."""
    folder.write(Segment("traces", 2, 17, 3), b"{}\n")
    assert store.read("run/telemetry/traces-2-17-000003.jsonl") == b"{}\n"


def test_the_listing_tells_closed_open_and_sent_apart(
    store: Store, folder: TelemetryFolder
) -> None:
    """Sizes, open segments and marks are found again; other files are not looked at."""
    other, millionth = Segment("logs", 3, 12, 1), Segment("metrics", 1, 0, 1_000_000)
    folder.write(FIRST, b"{}\n")
    folder.write(millionth, b"12\n")
    folder.write_open(other, b"{}\n")
    folder.mark_sent(FIRST, KEY, {"lines": 1})
    folder.write_progress(millionth, KEY, {"next_line": 1})
    store.put("run/telemetry/notes.txt", b"")
    listing = folder.list()
    assert listing.closed == {FIRST: 3, millionth: 3}
    assert listing.open == {other}
    assert listing.sent == {(FIRST, KEY)}


def test_a_closed_segment_is_never_rewritten(folder: TelemetryFolder) -> None:
    """The same bytes once more are fine (an answer was lost), others are refused."""
    folder.write(FIRST, b"{}\n")
    folder.write(FIRST, b"{}\n")
    with pytest.raises(StorageError, match="never rewritten"):
        folder.write(FIRST, b"[]\n")
    assert folder.read(FIRST) == b"{}\n"


def test_an_adopted_segment_is_closed_once(folder: TelemetryFolder) -> None:
    """What a dead rank saved becomes its closed segment; who comes second changes nothing."""
    folder.write_open(FIRST, b'{"n":1}\n')
    folder.adopt(FIRST)
    folder.adopt(FIRST)
    assert folder.read(FIRST) == b'{"n":1}\n'
    assert folder.list().open == frozenset()


def test_an_open_form_beside_its_closed_segment_counts_for_nothing(
    folder: TelemetryFolder,
) -> None:
    """A rank killed between closing and tidying up left both: the closed one is the whole one."""
    folder.write_open(FIRST, b'{"n":1}\n')
    folder.write(FIRST, b'{"n":1}\n{"n":2}\n')
    assert folder.list().open == frozenset()
    folder.adopt(FIRST)
    assert folder.read(FIRST) == b'{"n":1}\n{"n":2}\n'


def test_progress_ends_with_the_mark(store: Store, folder: TelemetryFolder) -> None:
    """How far a replay came is kept until the segment is through, then the mark is enough."""
    folder.write_progress(FIRST, KEY, {"next_line": 2})
    assert folder.read_progress(FIRST, KEY) == {"next_line": 2}
    folder.mark_sent(FIRST, KEY, {})
    assert folder.read_progress(FIRST, KEY) == {}
    assert store.list() == [f"run/telemetry/metrics-1-0-000000.jsonl.sent-{KEY}"]


@pytest.mark.parametrize("data", [b"not json", b"[]", b"\xff"])
def test_damaged_progress_is_told(store: Store, folder: TelemetryFolder, data: bytes) -> None:
    """A note that cannot be read is not taken for "nothing sent": that would double lines."""
    store.put(f"run/telemetry/metrics-1-0-000000.jsonl.progress-{KEY}", data)
    with pytest.raises(StorageError, match="remove it"):
        folder.read_progress(FIRST, KEY)


def test_a_new_attempt_tidies_up_here_too(tmp_path: Path) -> None:
    """Half files of killed writers disappear from the telemetry folder with the next launch."""
    folder = RunFolder(Store(tmp_path), "run")
    folder.telemetry.write(FIRST, b"{}\n")
    half = tmp_path / "run" / "telemetry" / ".costlens-0.tmp"
    half.write_bytes(b"half")
    os.utime(half, (1, 1))
    folder.claim_attempt("k", {})
    assert not half.exists()


def test_lines_and_content_are_each_others_inverse() -> None:
    """Lines come back as they were; one that was cut off counts, so that it can be named."""
    lines = [b'{"n":1}', b'{"n":2}']
    assert split_lines(join_lines(lines)) == lines
    assert split_lines(join_lines(lines) + b'{"n"') == [*lines, b'{"n"']
    assert split_lines(b"") == []
    with pytest.raises(ValueError, match="line break"):
        join_lines([b"two\nlines"])
