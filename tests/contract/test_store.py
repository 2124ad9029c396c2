"""What every store promises, run against each kind of place.

Another store needs one entry in `places.PLACES`.
"""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from costlens.errors import StorageError
from costlens.storage.run_folder import MAX_CONTROL_BYTES, RunFolder, claim_run_id
from costlens.storage.store import Store
from tests.contract.places import SEEN_BY_ALL, Place


def in_threads(num_threads: int, work: Callable[[int], object]) -> None:
    """Run `work(index)` in that many threads at once and re-raise what one of them raised."""
    start, raised = threading.Barrier(num_threads), []

    def body(index: int) -> None:
        start.wait()
        try:
            work(index)
        except BaseException as error:  # noqa: BLE001 - handed to the test
            raised.append(error)

    threads = [threading.Thread(target=body, args=(index,)) for index in range(num_threads)]
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # else a thread mostly ends before the next one gets a turn
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval_s)
    if raised:
        raise raised[0]


def test_what_was_put_is_read(store: Store) -> None:
    """An object comes back byte for byte, an empty one too, and a second put replaces it."""
    for data in (b"first, and longer", b"second", b"", bytes(range(256)) * 4096):
        store.put("run/record-1-0.json", data)
        assert store.read("run/record-1-0.json") == data
    assert store.list() == ["run/record-1-0.json"]


def test_durable_writes_are_writes(store: Store) -> None:
    """`durable` changes when a write returns, not what is there."""
    store.put("a", b"1", durable=True)
    assert store.create("b", b"2", durable=True)
    assert (store.read("a"), store.read("b")) == (b"1", b"2")


def test_several_objects_go_and_come_together(store: Store) -> None:
    """More than are in flight at once: each is written whole, and read into its own place."""
    objects = {f"data/{number:02d}": bytes([number]) * (1000 + number) for number in range(20)}
    store.put_many({key: memoryview(data) for key, data in objects.items()}, durable=True)
    assert store.sizes("data") == {key[5:]: len(data) for key, data in objects.items()}
    buffers = {key: bytearray(1010) for key in (*objects, "data/absent")}
    found = store.read_many_into({key: memoryview(each) for key, each in buffers.items()})
    assert found == {key: len(data) for key, data in objects.items()}
    for key, data in objects.items():
        assert bytes(buffers[key]) == data[:1010].ljust(1010, b"\0")
    whole = bytearray(1000)
    assert store.read_into("data/00", memoryview(whole)) == 1000
    assert store.read_into("data/absent", memoryview(whole)) is None
    assert bytes(whole) == objects["data/00"]
    with pytest.raises(StorageError, match="relative path"):
        store.put_many({"../out": b""})
    store.put_many({})


def test_a_cleared_folder_is_gone(store: Store) -> None:
    """With all that is in it at any depth; what is beside it stays."""
    for key in ("run/a/1", "run/a/b/2", "run/ab", "run/c/3"):
        store.put(key, b"1")
    store.clear("run/a")
    store.clear("run/absent")
    assert (store.list(), store.children("run")) == (["run/ab", "run/c/3"], ["ab", "c/"])


def test_what_is_not_there_is_none(store: Store) -> None:
    """An absent object, an absent place and a folder read as None and list as empty."""
    assert store.read("run/x") is None
    assert store.list() == store.list("run") == store.children() == store.children("run") == []
    store.put("run/attempts/0001.json", b"{}")
    assert store.read("run/attempts") is None
    assert store.read("run/attempts/0001.json/below") is None
    assert store.list("run/other") == store.children("run/other") == []


def test_create_makes_an_object_once(store: Store) -> None:
    """The second create is False and leaves the first object alone."""
    assert store.create("run/attempts/0001.json", b"first")
    assert not store.create("run/attempts/0001.json", b"second")
    assert not Store(store._location.url).create("run/attempts/0001.json", b"third")
    assert store.read("run/attempts/0001.json") == b"first"
    store.delete("run/attempts/0001.json")
    assert store.create("run/attempts/0001.json", b"")
    assert not store.create("run/attempts/0001.json", b"x")


def test_one_of_many_threads_creates(store: Store) -> None:
    """Eight threads create each of 50 objects; each object has one winner, whose bytes it holds."""
    won: dict[int, list[int]] = {number: [] for number in range(50)}

    def create_all(index: int) -> None:
        for number, winners in won.items():
            if store.create(f"race/{number}", b"%d" % index):
                winners.append(index)

    in_threads(8, create_all)
    assert {len(winners) for winners in won.values()} == {1}
    for number, [winner] in won.items():
        assert store.read(f"race/{number}") == b"%d" % winner


def test_a_reader_never_meets_half_an_object(store: Store) -> None:
    """While three threads replace an object, every read is one of the whole objects."""
    whole = {bytes([letter]) * size for letter, size in ((97, 3), (98, 100_000), (99, 300_000))}
    store.put("record", b"a" * 3)
    seen: Counter[bytes] = Counter()
    done = threading.Event()

    def write(data: bytes) -> None:
        for _ in range(60):
            store.put("record", data)

    def read() -> None:
        while not done.is_set():
            seen[store.read("record") or b""] += 1

    reader = threading.Thread(target=read)
    reader.start()
    try:
        in_threads(3, lambda index: write(sorted(whole)[index]))
    finally:
        done.set()
        reader.join()
    assert set(seen) <= whole
    assert store.list() == ["record"]


def test_listings_are_fresh(store: Store, url: str) -> None:
    """What another store object wrote or deleted is seen at once."""
    other = Store(url)
    assert store.list() == []
    other.put("run/a", b"1")
    assert (store.list(), store.children()) == (["run/a"], ["run/"])
    other.put("run/b", b"1")
    other.delete("run/a")
    assert (store.list(), store.read("run/a")) == (["run/b"], None)


def test_listing_is_by_folder(store: Store) -> None:
    """`list` goes to any depth, `children` one level, and a prefix is a folder, not a text."""
    for key in ("run/record-1-0.json", "run/segments/w-1.jsonl", "run-2/x", "top"):
        store.put(key, b"1")
    assert store.list() == ["run-2/x", "run/record-1-0.json", "run/segments/w-1.jsonl", "top"]
    assert store.list("run") == ["run/record-1-0.json", "run/segments/w-1.jsonl"]
    assert store.children() == ["run-2/", "run/", "top"]
    assert store.children("run") == ["record-1-0.json", "segments/"]
    assert store.sizes("run") == {"record-1-0.json": 1}
    assert store.sizes("none") == {}


def test_versions_change_with_every_write(store: Store, place: Place) -> None:
    """Also where the bytes stay the same: that is how a rank is seen to live."""
    for name in ("a", "b"):
        store.put(f"run/{name}", b"1")
    store.put("run/segments/c", b"1")
    before = store.versions("run")
    assert before.keys() == {"a", "b"}
    time.sleep(place.grain_s)  # of the store's clock
    store.put("run/b", b"1")
    after = store.versions("run")
    assert after["a"] == before["a"]
    assert after["b"] != before["b"]
    assert store.versions("none") == {}


def test_many_reads_at_once(store: Store) -> None:
    """`read_many` leaves out what is absent and keeps the rest, in any number."""
    store.put("a", b"1")
    store.put("b/c", b"2")
    assert store.read_many(["a", "b/c", "gone"]) == {"a": b"1", "b/c": b"2"}
    assert store.read_many(["gone"]) == store.read_many([]) == {}


def test_deleting_twice_is_fine(store: Store) -> None:
    """Deleting is about the object being gone."""
    store.put("run/a", b"1")
    store.delete("run/a")
    store.delete("run/a")
    store.delete("never/there")
    assert store.list() == []


@pytest.mark.parametrize("key", ["", "/a", "a//b", "../a", "a/../b", "./a", "a\\b", "C:/a", "a\0"])
def test_keys_stay_inside_the_store(store: Store, key: str) -> None:
    """C153: a key that could leave the root, on any system, is refused before anything is done."""
    with pytest.raises(StorageError, match="relative path"):
        store.put(key, b"x")
    assert store.list() == []


def test_a_store_travels(store: Store) -> None:
    """A used store can be pickled and deep-copied, as a callback in a spawned trainer is."""
    store.put("a", b"1")
    assert pickle.loads(pickle.dumps(store)).read("a") == b"1"
    assert copy.deepcopy(store).read("a") == b"1"


@pytest.mark.parametrize("place", SEEN_BY_ALL, indirect=True)
def test_a_used_store_works_in_a_forked_child(store: Store) -> None:
    """After a fork the child reads what was there, and writes where others see it."""
    store.put("a", b"1")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            store.put("b", store.read("a") or b"lost")
            status = 0 if store.list() == ["a", "b"] else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert store.read("b") == b"1"


# ── the run folder over every store ──────────────────────────────────────────────────────────


def test_attempts_are_numbered_from_stored_state(store: Store) -> None:
    """C026: two launches whose restart counter says 0 both times are attempts 1 and 2."""
    counters = ["launch-a restart=0", "launch-b restart=0"]
    claimed = [RunFolder(store, "run").claim_attempt(key, {"restart": 0}) for key in counters]
    assert claimed == [1, 2]


def test_ranks_of_one_launch_share_the_number(store: Store) -> None:
    """Whoever comes first, and however often, one key is one attempt; claims keep the details."""
    keys = ["k1", "k1", "k2", "k1", "k2", "k3"]
    folders = [RunFolder(store, "run") for _ in keys]
    numbers = [
        folder.claim_attempt(key, {"rank": rank, "launch_key": "no"})
        for rank, (folder, key) in enumerate(zip(folders, keys, strict=True))
    ]
    assert numbers == [1, 1, 2, 1, 2, 3]
    assert RunFolder(store, "run").read_claims() == (
        {
            1: {"rank": 0, "launch_key": "k1"},
            2: {"rank": 2, "launch_key": "k2"},
            3: {"rank": 5, "launch_key": "k3"},
        },
        [],
    )


def test_racing_threads_get_one_number_a_key(store: Store) -> None:
    """Twelve threads claim for three launches at once: three numbers, each key's ranks agree."""
    for round_ in range(10):
        got: dict[str, set[int]] = {"k0": set(), "k1": set(), "k2": set()}

        def claim(index: int, run: str = f"run-{round_}", got: dict[str, set[int]] = got) -> None:
            key = f"k{index % 3}"
            got[key].add(RunFolder(store, run).claim_attempt(key, {}))

        in_threads(12, claim)
        assert sorted(map(sorted, got.values())) == [[1], [2], [3]]


RACE = """
import sys, time
from pathlib import Path
from costlens.storage.run_folder import RunFolder
from costlens.storage.store import Store
url, key, ready, go = sys.argv[1:]
store = Store(url)
folders = [RunFolder(store, f"run-{number}") for number in range(20)]
Path(ready).touch()
while not Path(go).exists():
    time.sleep(0.001)
print(*[folder.claim_attempt(key, {}) for folder in folders])
"""


@pytest.mark.parametrize("place", SEEN_BY_ALL, indirect=True)
def test_racing_processes_get_one_number_a_key(url: str, tmp_path: Path) -> None:
    """Eight processes of two launches claim at once, in 20 runs: exactly the numbers 1 and 2."""
    ready, go = [tmp_path / f"ready-{index}" for index in range(8)], tmp_path / "go"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RACE, url, f"k{index % 2}", str(ready[index]), str(go)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for index in range(8)
    ]
    while not all(path.exists() for path in ready):
        assert all(process.poll() is None for process in processes)
        time.sleep(0.005)
    go.touch()
    claimed = [process.communicate()[0].split() for process in processes]
    for in_run in zip(*claimed, strict=True):
        assert {*in_run} == {"1", "2"}
        assert len({*in_run[::2]}) == len({*in_run[1::2]}) == 1


def test_a_control_file_is_read_no_further_than_its_limit(store: Store) -> None:
    """Absent is None; of a huge one so much comes that it is seen to be too large."""
    folder = RunFolder(store, "run")
    assert folder.read_control() is None
    folder.write_control(b"{}")
    assert folder.read_control() == b"{}"
    folder.write_control(b"x" * 1_000_000)
    assert folder.read_control() == b"x" * (MAX_CONTROL_BYTES + 1)


def test_records_are_replaced_and_read_in_order(store: Store) -> None:
    """Records come back by attempt and rank as numbers, each in its newest version."""
    folder = RunFolder(store, "run")
    for attempt, rank in ((2, 0), (1, 10), (1, 2)):
        folder.write_record(attempt, rank, b"{}")
        folder.write_record(attempt, rank, json.dumps({"at": [attempt, rank]}).encode())
    records, problems = folder.read_records()
    assert [*records.items()] == [
        ("record-1-2.json", {"at": [1, 2]}),
        ("record-1-10.json", {"at": [1, 10]}),
        ("record-2-0.json", {"at": [2, 0]}),
    ]
    assert problems == []
    assert folder.read_record(1, 2) == b'{"at": [1, 2]}'
    assert folder.read_record(1, 3) is None


def test_an_unreadable_record_is_reported(store: Store) -> None:
    """One broken record does not hide the others, and its problem names the file."""
    folder = RunFolder(store, "run")
    folder.write_record(1, 0, b'{"rank": 0}')
    for rank, data in enumerate((b"", b'{"rank":', b"[1]", b"\xff\xfe", b"[" * 100_000), start=1):
        folder.write_record(1, rank, data)
    records, problems = folder.read_records()
    assert records == {"record-1-0.json": {"rank": 0}}
    assert [problem.split(":")[0] for problem in problems] == [
        f"record-1-{rank}.json" for rank in range(1, 6)
    ]


def test_a_record_is_bounded(store: Store) -> None:
    """256 KiB fit; one byte more is refused and the record before it stays."""
    folder = RunFolder(store, "run")
    folder.write_record(1, 0, b" " * (256 * 1024))
    with pytest.raises(StorageError, match="262145 bytes") as raised:
        folder.write_record(1, 0, b" " * (256 * 1024 + 1))
    assert raised.value.errno is not None
    assert len(folder.read_record(1, 0) or b"") == 256 * 1024


def test_segments_are_closed(store: Store) -> None:
    """Lines come back in order; a segment is written once, but the same bytes may be repeated."""
    folder = RunFolder(store, "run")
    for number in (10, 2, 0):
        folder.append_segment(1, 0, number, [b'{"n": %d}' % number, b"{}"])
    folder.append_segment(1, 1, 0, [b"another rank"])
    folder.append_segment(11, 0, 0, [b"another attempt"])
    folder.append_segment(1, 0, 3, [])
    expected = [b'{"n": 0}', b"{}", b'{"n": 2}', b"{}", b'{"n": 10}', b"{}"]
    assert [*folder.read_segments(1, 0)] == expected

    folder.append_segment(1, 0, 2, [b'{"n": 2}', b"{}"])
    with pytest.raises(StorageError, match="never rewritten"):
        folder.append_segment(1, 0, 2, [b"other"])
    with pytest.raises(ValueError, match="line break"):
        folder.append_segment(1, 0, 4, [b"two\nlines"])
    assert [*folder.read_segments(1, 0)] == expected
    assert [*folder.read_segments(3, 3)] == []


def test_a_segment_that_is_far_too_large_takes_little_memory(store: Store) -> None:
    """Its first lines are read, and the rest is not; the next segment is."""
    folder = RunFolder(store, "run")
    line = b'"' + b"x" * (2**20 - 3) + b'"\n'
    store.put("run/segments/windows-1-0-000000.jsonl", line * 20)
    folder.append_segment(1, 0, 1, [b"{}"])
    assert [len(each) for each in folder.read_segments(1, 0)] == [2**20 - 1] * 16 + [2]


def test_checkpoints_name_their_run(store: Store) -> None:
    """The first run at a checkpoint URL names it; a restart that proposes another id joins it."""
    assert claim_run_id(store, "run-a") == "run-a"
    assert claim_run_id(store, "run-b") == "run-a"
    assert json.loads(store.read("run.json") or b"") == {"run_id": "run-a"}


def test_racing_threads_agree_on_the_run(store: Store) -> None:
    """Eight threads propose eight ids; all get the same one."""
    got: list[str] = []
    in_threads(8, lambda index: got.append(claim_run_id(store, f"run-{index}")))
    assert len(got) == 8
    assert len({*got}) == 1
