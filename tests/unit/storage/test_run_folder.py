"""The run folder where claims are incomplete, listings lag, and files are damaged."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pytest

from costlens.errors import StorageError
from costlens.storage.local import LocalBackend
from costlens.storage.run_folder import RunFolder, claim_run_id
from costlens.storage.store import Store
from tests.http_servers import LoopbackServer


class LaggingStore(Store):
    """Lists as an NFS client with a stale folder does: without the newest claim."""

    def children(self, prefix: str = "") -> list[str]:
        """Return the names without the last one."""
        return super().children(prefix)[:-1]


class RefusingStore(Store):
    """A store in which somebody else always comes first."""

    def create(self, key: str, data: bytes, *, durable: bool = False) -> bool:
        """Create nothing."""
        return False


def claim_in_the_making(store: Store, number: int) -> str:
    """Leave the empty file that a claim is for a moment where there are no hard links."""
    key = f"run/attempts/{number:04d}.json"
    store.put(key, b"")
    return key


def test_a_claim_holds_key_and_details(tmp_path: Path) -> None:
    """The claim's file is JSON that others can read, at the place the layout says."""
    RunFolder(Store(tmp_path), "run").claim_attempt("k", {"wall_ns": 5, "ranks": [0, 1]})
    claim = json.loads((tmp_path / "run/attempts/0001.json").read_bytes())
    assert claim == {"wall_ns": 5, "ranks": [0, 1], "launch_key": "k"}


def test_an_empty_claim_is_waited_for(tmp_path: Path) -> None:
    """A rank of the same launch is about to fill its claim: the number is shared, not doubled."""
    store, pauses = Store(tmp_path), []
    key = claim_in_the_making(store, 1)

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            store.put(key, b'{"launch_key": "k"}')

    assert RunFolder(store, "run", pause=pause).claim_attempt("k", {}) == 1
    assert len(pauses) == 3


def test_a_claim_that_stays_empty_is_passed_over(tmp_path: Path) -> None:
    """Its writer was killed: after a second the number counts as taken, and the run goes on."""
    store, pauses = Store(tmp_path), []
    claim_in_the_making(store, 1)
    assert RunFolder(store, "run", pause=pauses.append).claim_attempt("k", {}) == 2
    assert 0.5 <= sum(pauses) <= 2
    assert RunFolder(store, "run", pause=pauses.append).claim_attempt("k", {}) == 2


def test_a_lagging_listing_doubles_nothing(tmp_path: Path) -> None:
    """A listing that misses the newest claim costs a try, not a second number for one launch."""
    RunFolder(Store(tmp_path), "run").claim_attempt("k1", {})
    RunFolder(Store(tmp_path), "run").claim_attempt("k2", {})
    lagging = RunFolder(LaggingStore(tmp_path), "run")
    assert lagging.claim_attempt("k2", {}) == 2
    assert lagging.claim_attempt("k3", {}) == 3


def test_a_listing_with_a_hole_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing made while claims appear may miss an older one: it is read by its number."""
    for key in ("k1", "k2", "k3"):
        RunFolder(Store(tmp_path), "run").claim_attempt(key, {})
    monkeypatch.setattr(Store, "children", lambda self, prefix="": ["0003.json"])
    assert RunFolder(Store(tmp_path), "run").claim_attempt("k2", {}) == 2


def test_foreign_files_are_not_claims(tmp_path: Path) -> None:
    """Editors' and users' files among the claims change no number; a broken claim takes its own."""
    store = Store(tmp_path)
    for name in ("0007.json~", "7.json", "notes.txt", "0009.json/x"):
        store.put(f"run/attempts/{name}", b"{}")
    store.put("run/attempts/0001.json", b"not json")
    folder = RunFolder(store, "run")
    assert folder.claim_attempt("k", {}) == 2
    claims, problems = folder.read_claims()
    assert claims == {2: {"launch_key": "k"}}
    assert [problem.split(":")[0] for problem in problems] == ["attempts/0001.json"]


def test_numbers_go_on_after_9999(tmp_path: Path) -> None:
    """Four digits are a width, not a limit."""
    store = Store(tmp_path)
    store.put("run/attempts/9999.json", b'{"launch_key": "k"}')
    assert RunFolder(store, "run").claim_attempt("k2", {}) == 10_000
    assert RunFolder(store, "run").claim_attempt("k3", {}) == 10_001


def test_an_unreadable_claim_stops_the_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim that cannot be read might be ours, so no number is taken beside it."""
    RunFolder(Store(tmp_path), "run").claim_attempt("k", {})

    def refuse(self: LocalBackend, key: str) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(LocalBackend, "read", refuse)
    with pytest.raises(StorageError, match="EIO"):
        RunFolder(Store(tmp_path), "run").claim_attempt("k", {})
    assert Store(tmp_path).list() == ["run/attempts/0001.json"]


def test_claiming_ends(tmp_path: Path) -> None:
    """Where others take every number, the claim fails after a bounded number of tries."""
    with pytest.raises(StorageError, match="100 tries"):
        RunFolder(RefusingStore(tmp_path), "run").claim_attempt("k", {})


def test_a_new_attempt_tidies_up(tmp_path: Path) -> None:
    """Half files of killed writers disappear when the next launch claims its number."""
    folder = RunFolder(Store(tmp_path), "run")
    folder.claim_attempt("k1", {})
    folder.append_segment(1, 0, 0, [b"{}"])
    halves = [tmp_path / "run" / name / ".costlens-0.tmp" for name in (".", "attempts", "segments")]
    for half in halves:
        half.write_bytes(b"half")
        os.utime(half, (1, 1))
    folder.claim_attempt("k1", {})
    assert all(half.exists() for half in halves)
    folder.claim_attempt("k2", {})
    assert not any(half.exists() for half in halves)


def test_a_vanished_run_goes_on(tmp_path: Path) -> None:
    """The folder is removed mid-run: records and segments are written again, reads find those."""
    store = Store(tmp_path)
    folder = RunFolder(store, "run")
    folder.write_record(1, 0, b'{"n": 1}')
    for key in store.list():
        store.delete(key)
    (tmp_path / "run").rmdir()
    folder.append_segment(1, 0, 1, [b"{}"])
    folder.write_record(1, 0, b'{"n": 2}')
    assert folder.read_records() == ({"record-1-0.json": {"n": 2}}, [])
    assert [*folder.read_segments(1, 0)] == [b"{}"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_what_is_no_regular_file_is_told_and_does_not_block(tmp_path: Path) -> None:
    """A pipe, a folder, links to nothing and to themselves, odd names: all named, none read."""
    folder = RunFolder(Store(tmp_path), "run")
    folder.claim_attempt("k", {})
    folder.write_record(1, 0, b"{}")
    run = tmp_path / "run"
    os.mkfifo(run / "record-2-0.json")
    os.mkfifo(run / "attempts/0002.json")
    (run / "record-3-0.json").mkdir()
    (run / "record-4-0.json").symlink_to(run / "absent")
    (run / "record-5-0.json").symlink_to(run / "record-5-0.json")
    (run / "record-6-0.json").symlink_to("/dev/zero")
    for name in ("record-02-0.json", "record-2-x.json", "record-٢-0.json"):
        (run / name).write_bytes(b"{}")
    (run / "notes.json").write_bytes(b"{}")
    records, problems = folder.read_records()
    assert [*records] == ["record-1-0.json"]
    assert sorted(problem.split(":")[0] for problem in problems) == sorted(
        [
            *("record-2-0.json", "record-3-0.json/", "record-4-0.json", "record-5-0.json"),
            *("record-6-0.json", "record-02-0.json", "record-2-x.json", "record-٢-0.json"),
        ]
    )
    claims, told = folder.read_claims()
    assert [*claims] == [1]
    assert [problem.split(":")[0] for problem in told] == ["attempts/0002.json"]


@pytest.mark.parametrize("data", [b"not json", b"[]", b"{}", b'{"run_id": 3}', b"\xff"])
def test_a_damaged_run_json_is_told(tmp_path: Path, data: bytes) -> None:
    """Checkpoints of an unknown run are not given to a new one; the error says what to do."""
    store = Store(tmp_path)
    store.put("run.json", data)
    with pytest.raises(StorageError, match=r"does not name a run.*remove it to start"):
        claim_run_id(store, "run-b")
    assert store.read("run.json") == data


def test_an_empty_run_json_is_waited_for(tmp_path: Path) -> None:
    """Another process is about to fill it; if it never does, the error says so."""
    store, pauses = Store(tmp_path), []
    store.put("run.json", b"")

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            store.put("run.json", b'{"run_id": "run-a"}')

    assert claim_run_id(store, "run-b", pause=pause) == "run-a"
    store.put("run.json", b"")
    with pytest.raises(StorageError, match="stays empty"):
        claim_run_id(store, "run-b", pause=pauses.append)


def test_a_hostile_run_id_stays_inside(tmp_path: Path) -> None:
    """C153: an id proposed, or read from a file somebody else wrote, cannot leave the root."""
    store = Store(tmp_path)
    store.put("run.json", b'{"run_id": "../../x"}')
    found = claim_run_id(store, "run")
    assert "/" not in found
    store.delete("run.json")
    assert claim_run_id(store, "../../x") == found


class Quiet(SimpleHTTPRequestHandler):
    """Serves files and says nothing of it."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        """Do nothing."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """The URL of a web server that lists folders as pages of links."""
    with LoopbackServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_web_servers_listing_tells_no_sizes(served: str, tmp_path: Path) -> None:
    """The records behind one are read all the same, and a huge one is not."""
    folder = tmp_path / "r"
    folder.mkdir()
    (folder / "record-1-0.json").write_text('{"rank": 0}')
    (folder / "record-1-1.json").write_bytes(b" " * (5 * 1024 * 1024))
    run = RunFolder(Store(served), "r")
    records, problems = run.read_records()
    assert records == {"record-1-0.json": {"rank": 0}}
    assert len(problems) == 1
    assert "record-1-1.json: it has 5242880 bytes" in problems[0]
    assert Store(served).sizes("r") == {"record-1-0.json": 11, "record-1-1.json": 5242880}
