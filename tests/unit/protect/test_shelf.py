"""Checkpoints in a store: whole or not there, newest first, and nothing of another run."""

from __future__ import annotations

import errno
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from costlens.errors import CheckpointError, StorageError
from costlens.protect import commit as commit_module
from costlens.protect.commit import Committer, folder_of, manifest_key
from costlens.protect.manifest import CheckpointName, Manifest
from costlens.protect.shelf import Shelf
from costlens.protect.snapshot import HostBuffer, load_tree
from costlens.storage.store import Store

RUN = "gpt-small"


def save(store: Store, step: int, *, run_id: str = RUN, attempt: int = 1) -> CheckpointName:
    """Save a state that knows its step, and return the checkpoint's name."""
    name = CheckpointName.new(step, attempt, time.time())
    snapshot = HostBuffer().take({"weight": torch.full((1000,), float(step)), "step": step})
    committer = Committer(store, run_id, sleep=lambda _seconds: None)
    shard = committer.write_shard(name, 0, snapshot.skeleton, snapshot.view())
    committer.commit(
        name,
        Manifest(
            run_id=run_id,
            attempt=attempt,
            step=step,
            kind="interval",
            created_time=time.time(),
            world_size=1,
            shards=[shard],
            costlens_version="0",
            torch_version="2",
        ),
    )
    return name


def newest_step(store: Store, run_id: str = RUN) -> int | None:
    """Return the step of the state that a resume would get."""
    loaded = Shelf(store, run_id).load_newest()
    if loaded is None:
        return None
    tree = load_tree(loaded.skeleton, loaded.buffer)
    assert torch.equal(tree["weight"], torch.full((1000,), float(tree["step"])))
    return int(tree["step"])


def data_file(root: Path, name: CheckpointName, part: str = "r00000-00000") -> Path:
    """Return the file of one object."""
    return root / folder_of(RUN, name) / part


@pytest.fixture(name="store")
def _store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "checkpoints"))


@pytest.fixture(name="root")
def _root(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


def test_the_newest_is_that_of_the_highest_step(store: Store, root: Path) -> None:
    """C034: by number, not by text or file time; keeping two keeps the two newest."""
    import os

    names = [save(store, step) for step in (1000, 9, 900)]
    for age, name in enumerate(names):
        os.utime(root / manifest_key(RUN, name), (age * 1000, age * 1000))
    assert newest_step(store) == 1000
    shelf = Shelf(store, RUN)
    assert shelf.prune(-1) == 0
    assert shelf.prune(2) == 1
    assert [name.step for name in shelf.names()] == [1000, 900]


def truncate(path: Path) -> None:
    """Cut a file in half."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    """Leave nothing in a file."""
    path.write_bytes(b"")


def flip(path: Path) -> None:
    """Change one bit."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGES: list[Callable[[Path], None]] = [truncate, empty, flip, Path.unlink]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("part", ["r00000-00000", "r00000-skeleton"])
def test_damage_falls_back_to_the_one_before(
    store: Store, root: Path, damage: Callable[[Path], None], part: str
) -> None:
    """C033: any wrong byte is found, named and marked; the checkpoint before it is used."""
    save(store, 10)
    bad = save(store, 20)
    damage(data_file(root, bad, part))
    shelf = Shelf(store, RUN)
    loaded = shelf.load_newest()
    assert loaded is not None
    assert loaded.found.manifest.step == 10
    assert [(each.name, each.is_final) for each in shelf.rejections] == [(bad, True)]
    with pytest.raises(CheckpointError):
        shelf.verify(bad)
    assert shelf.verify(loaded.found.name).manifest.step == 10


def test_a_bad_checkpoint_is_not_tried_again(store: Store, root: Path) -> None:
    """C033: 10 good, 20 cut, 30 empty: two rejections, and none of their bytes read once more."""
    save(store, 10)
    cut, hollow = save(store, 20), save(store, 30)
    truncate(data_file(root, cut))
    empty(data_file(root, hollow))
    shelf = Shelf(store, RUN)
    assert newest_step(store) == 10
    for name in (cut, hollow):
        data_file(root, name).unlink()
        (root / manifest_key(RUN, name)).write_bytes(b"{}")
    shelf.load_newest()
    assert [each.name.step for each in shelf.rejections] == [30, 20]
    assert all("earlier start found" in each.reason for each in shelf.rejections)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"schema_version": "costlens.checkpoint/9"}', "\x80", "null"],
)
def test_a_manifest_that_is_none_is_passed_over(store: Store, root: Path, text: str) -> None:
    """Whatever stands in its place, nothing is loaded by it."""
    save(store, 10)
    bad = save(store, 20)
    (root / manifest_key(RUN, bad)).write_text(text, encoding="latin-1")
    assert newest_step(store) == 10


def edit(root: Path, name: CheckpointName, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a manifest as somebody with access to the store could."""
    path = root / manifest_key(RUN, name)
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


HOSTILE: dict[str, Callable[[dict[str, Any]], object]] = {
    "another's object": lambda m: m["shards"][0]["data"][0].update(key="other/data/x"),
    "a path out": lambda m: m["shards"][0]["data"][0].update(key="../../etc/passwd"),
    "another run": lambda m: m.update(run_id="other"),
    "another step": lambda m: m.update(step=99),
    "no rank": lambda m: m.update(world_size=2),
    "a size of its own": lambda m: m["shards"][0].update(num_bytes=2**50),
    "more than there is": lambda m: (
        m["shards"][0].update(num_bytes=2**50),
        m["shards"][0]["data"][0].update(num_bytes=2**50),
    ),
    "a negative size": lambda m: m["shards"][0]["data"][0].update(num_bytes=-1),
    "more ranks than memory holds": lambda m: m.update(world_size=10**18),
    "one object many times": lambda m: m["shards"][0].update(
        data=m["shards"][0]["data"] * 1000, num_bytes=m["shards"][0]["num_bytes"] * 1000
    ),
    "a time that is none": lambda m: m.update(created_time=float("nan")),
    "a time after all calendars": lambda m: m.update(created_time=1e300),
    "a lineage of megabytes": lambda m: m.update(lineage="2" * 10**6),
    "a parent of megabytes": lambda m: m.update(parent="x" * 10**6),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_a_manifest_that_lies_is_passed_over(
    store: Store, root: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    """C152: what a hostile manifest names is neither read nor allocated."""
    save(store, 10)
    bad = save(store, 20)
    edit(root, bad, change)
    assert newest_step(store) == 10


def test_a_rank_that_saved_nothing_spoils_nothing(store: Store) -> None:
    """A fifth rank gets nothing of a job of one, and the checkpoint stays good for the others."""
    save(store, 10)
    shelf = Shelf(store, RUN)
    assert shelf.load_newest(rank=4) is None
    assert [each.reason for each in shelf.rejections] == ["it was saved by 1 ranks"]
    assert newest_step(store) == 10


def test_data_without_a_manifest_does_not_exist(store: Store) -> None:
    """C032: a save that was killed before its manifest is never chosen, and swept a day later."""
    save(store, 10)
    name = CheckpointName.new(20, 1, time.time())
    snapshot = HostBuffer().take({"weight": torch.zeros(10)})
    Committer(store, RUN).write_shard(name, 0, snapshot.skeleton, snapshot.view())
    shelf = Shelf(store, RUN)
    assert newest_step(store) == 10
    assert shelf.rejections == []
    assert shelf.sweep(time.time()) == 0
    assert shelf.sweep(time.time() + 25 * 3600) == 1
    assert store.list(folder_of(RUN, name)) == []
    assert newest_step(store) == 10


def test_retention_leaves_what_is_needed(store: Store) -> None:
    """The resumed and the last good one stay, two stay at least; rejected ones do not count."""
    names = [save(store, step) for step in (10, 20, 30, 40)]
    shelf = Shelf(store, RUN)
    shelf.reject(names[3], "it is not whole")
    assert shelf.prune(1, protected=frozenset({names[0]})) == 0
    assert shelf.prune(1) == 1
    assert [name.step for name in shelf.names()] == [40, 30, 20]


def test_two_runs_in_one_place_never_mix(store: Store) -> None:
    """C040: each run finds its own."""
    save(store, 10)
    save(store, 99, run_id="other")
    assert newest_step(store) == 10
    assert newest_step(store, "other") == 99
    assert newest_step(store, "third") is None


def test_a_run_id_cannot_leave_the_place(store: Store, tmp_path: Path) -> None:
    """C153: a hostile run id is one safe name."""
    save(store, 10, run_id="../../out")
    assert newest_step(store, "../../out") == 10
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoints"]


class Faulty(Store):
    """A store that fails as told before it does what it is asked."""

    def __init__(self, url: str, faults: list[Exception | None]) -> None:
        super().__init__(url)
        self.faults = faults
        self.drops = False

    def put_many(self, objects: Any, *, durable: bool = False) -> None:
        if self.faults and (fault := self.faults.pop(0)) is not None:
            raise fault
        if not self.drops:
            super().put_many(objects, durable=durable)


def storage_error(number: int) -> StorageError:
    """Return what a store raises."""
    error = StorageError("no")
    error.errno = number
    return error


def test_a_write_that_fails_twice_is_one_checkpoint(root: Path) -> None:
    """C039: two retries are counted, and no object is there twice."""
    store = Faulty(str(root), [storage_error(errno.EIO), storage_error(errno.EIO)])
    name = CheckpointName.new(10, 1, time.time())
    committer = Committer(store, RUN, sleep=lambda _seconds: None)
    shard = committer.write_shard(name, 0, b"skeleton", memoryview(b"x" * 100))
    assert committer.num_retries == 2
    assert len(store.list(folder_of(RUN, name))) == 1 + len(shard.data)


def test_an_object_that_the_store_lost_fails_the_save(root: Path) -> None:
    """C039: an upload that reports success and keeps nothing is no checkpoint."""
    store = Faulty(str(root), [])
    store.drops = True
    name = CheckpointName.new(10, 1, time.time())
    with pytest.raises(CheckpointError, match="has nothing of it"):
        Committer(store, RUN).write_shard(name, 0, b"skeleton", memoryview(b"x" * 100))


def test_a_full_disk_keeps_what_was_there(root: Path) -> None:
    """C037: no retry, nothing left of the failed save, the earlier checkpoint still good."""
    store = Faulty(str(root), [])
    save(store, 10)
    store.faults = [None, storage_error(errno.ENOSPC)]
    committer = Committer(store, RUN, sleep=lambda _seconds: pytest.fail("it was tried again"))
    name = CheckpointName.new(20, 1, time.time())
    with pytest.raises(StorageError):
        committer.write_shard(name, 0, b"skeleton", memoryview(b"x" * 100))
    assert store.list(folder_of(RUN, name)) == []
    assert newest_step(store) == 10
    save(store, 30)
    assert newest_step(store) == 30


@pytest.mark.parametrize("number", [errno.EROFS, errno.EDQUOT])
def test_a_place_that_cannot_be_written_is_told_before_the_first_step(
    root: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C038: the check names the place and the errno."""
    store = Store(str(root))

    def refuse(*_: object, **__: object) -> bool:
        raise OSError(number, "no")

    monkeypatch.setattr(store._opened(), "create", refuse)
    with pytest.raises(StorageError, match=errno.errorcode[number]) as caught:
        Committer(store, RUN).check()
    assert str(root) in str(caught.value)


def test_a_place_that_takes_objects_passes_the_check(store: Store) -> None:
    """Nothing is left of it."""
    Committer(store, RUN).check()
    assert store.list() == []


def test_one_name_is_committed_once(store: Store) -> None:
    """C040: the second writer of one name is refused; the same one again is the same checkpoint."""
    name = save(store, 10)
    manifest = Shelf(store, RUN).read(name).manifest
    committer = Committer(store, RUN)
    committer.commit(name, manifest)
    with pytest.raises(CheckpointError, match="another writer"):
        committer.commit(name, manifest.model_copy(update={"created_time": 1.0}))


def test_a_large_state_is_several_objects(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts are cut and joined without losing a byte."""
    monkeypatch.setattr(commit_module, "PART_BYTES", 1024)
    name = save(store, 10)
    assert len(Shelf(store, RUN).read(name).manifest.shards[0].data) == 4
    assert newest_step(store) == 10


def test_names_come_back() -> None:
    """A name is its text, and text that is no name is none."""
    name = CheckpointName.new(200, 3, 1_790_000_000.0)
    assert CheckpointName.parse(str(name)) == name
    assert name.wall_s == 1_790_000_000.0
    assert CheckpointName.parse("last.ckpt") is None
    assert CheckpointName(1, 1, "99999999T999999", "00000000").wall_s == float("-inf")
