"""Checkpoints on each kind of place: whole or not there, whatever happens to their objects."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from costlens.errors import CheckpointError
from costlens.protect import commit as commit_module
from costlens.protect.commit import Committer, folder_of, manifest_key
from costlens.protect.manifest import CheckpointName, Manifest
from costlens.protect.shelf import Shelf
from costlens.storage.store import Store
from tests.contract.places import SEEN_BY_ALL
from tests.contract.saves import RUN, manifest_of, newest_step, save, snapshot_at


@pytest.fixture(autouse=True)
def _several_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut a state of 400 kB into several objects everywhere."""
    monkeypatch.setattr(commit_module, "PART_BYTES", 150_000)
    monkeypatch.setattr(commit_module, "_MIN_REMOTE_PART_BYTES", 20_000)


def test_the_newest_comes_back_and_old_ones_go(store: Store) -> None:
    """C034: by step as a number; every object of what is pruned goes, and nothing else."""
    assert newest_step(Shelf(store, RUN)) is None
    for step in (1000, 9, 900):
        save(store, step)
    shelf = Shelf(store, RUN)
    assert newest_step(shelf) == 1000
    assert shelf.prune(2) == 1
    assert [name.step for name in shelf.names()] == [1000, 900]
    assert {
        CheckpointName.parse(key.split("/")[2].removesuffix(".json")).step  # type: ignore[union-attr]
        for key in store.list()
    } == {1000, 900}
    assert newest_step(shelf) == 1000


def truncate(store: Store, key: str) -> None:
    """Cut an object in half."""
    data = store.read(key) or b""
    store.put(key, data[: len(data) // 2])


def empty(store: Store, key: str) -> None:
    """Leave nothing in an object."""
    store.put(key, b"")


def flip(store: Store, key: str) -> None:
    """Change one bit."""
    data = bytearray(store.read(key) or b"")
    data[len(data) // 2] ^= 1
    store.put(key, bytes(data))


def lose(store: Store, key: str) -> None:
    """Remove an object."""
    store.delete(key)


@pytest.mark.parametrize("damage", [truncate, empty, flip, lose], ids=lambda each: each.__name__)
def test_damage_falls_back(store: Store, damage: Callable[[Store, str], None]) -> None:
    """C033: skeleton, first and last part, manifest: each damage is found, and 10 is used."""
    save(store, 10)
    for part in ("skeleton", "00000", "last"):
        bad = save(store, 20)
        parts = [each for each in store.children(folder_of(RUN, bad)) if "skeleton" not in each]
        assert len(parts) > 2
        name = parts[-1] if part == "last" else f"r00000-{part}"
        damage(store, f"{folder_of(RUN, bad)}/{name}")
        shelf = Shelf(store, RUN)
        assert newest_step(shelf) == 10
        assert bad in [each.name for each in shelf.rejections]
        with pytest.raises(CheckpointError):
            shelf.verify(bad)
    bad = save(store, 30)
    damage(store, manifest_key(RUN, bad))
    assert newest_step(Shelf(store, RUN)) == 10
    good = save(store, 40)
    assert Shelf(store, RUN).verify(good).name == good


def test_what_another_writer_saved_is_found_at_once(store: Store, url: str) -> None:
    """C043: no listing is remembered, whatever the plug-in would remember."""
    shelf = Shelf(store, RUN)
    assert shelf.names() == []
    save(Store(url), 10)
    assert newest_step(shelf) == 10
    name = save(Store(url), 20)
    assert newest_step(shelf) == 20
    Shelf(Store(url), RUN).remove(name)
    assert newest_step(shelf) == 10


def test_one_of_many_writers_of_a_name_wins(store: Store) -> None:
    """C040: whoever commits first; the others are told, and what is there is the winner's."""
    name, snapshot = CheckpointName.new(10, 1, time.time()), snapshot_at(10)
    shard = Committer(store, RUN).write_shard(name, 0, snapshot.skeleton, snapshot.view())
    won: list[float] = []
    lost: list[CheckpointError] = []

    def commit(index: int) -> None:
        manifest = manifest_of(name, shard).model_copy(update={"created_time": float(index)})
        try:
            Committer(store, RUN).commit(name, manifest)
        except CheckpointError as error:
            lost.append(error)
        else:
            won.append(manifest.created_time)

    threads = [threading.Thread(target=commit, args=(index,)) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(won), len(lost)) == (1, 5)
    assert Shelf(store, RUN).read(name).manifest.created_time == won[0]


def test_data_without_a_manifest_is_swept_a_day_later(store: Store) -> None:
    """C032: with whatever killed writers left beside it."""
    save(store, 10)
    name, snapshot = CheckpointName.new(20, 1, time.time()), snapshot_at(20)
    Committer(store, RUN).write_shard(name, 0, snapshot.skeleton, snapshot.view())
    shelf = Shelf(store, RUN)
    assert newest_step(shelf) == 10
    assert shelf.sweep(time.time()) == 0
    assert shelf.sweep(time.time() + 25 * 3600) == 1
    assert shelf.sweep(time.time() + 25 * 3600) == 0  # not even an empty folder is left
    assert not any(str(name) in key for key in store.list())
    assert newest_step(shelf) == 10


class Counting(Store):
    """A store that counts the bytes it is given, and can lose or refuse what it is given."""

    num_bytes = 0
    num_refused = 0
    drops: str | None = None

    def put_many(self, objects: Any, *, durable: bool = False) -> None:
        if self.num_refused:
            self.num_refused -= 1
            raise commit_module.StorageError("try again")
        self.num_bytes += sum(len(data) for data in objects.values())
        kept = {k: v for k, v in objects.items() if not self.drops or not k.endswith(self.drops)}
        super().put_many(kept, durable=durable)

    def create(self, key: str, data: bytes, *, durable: bool = False) -> bool:
        self.num_bytes += len(data)
        return super().create(key, data, durable=durable)


def test_nothing_is_written_twice(url: str) -> None:
    """C044, C036: the newest is found by listing: no second copy, no link, no alias."""
    store = Counting(url)
    for step in range(1, 6):
        save(store, step)
    state_bytes = snapshot_at(1).num_bytes
    assert 5 * state_bytes < store.num_bytes < 5.2 * state_bytes
    assert newest_step(Shelf(store, RUN)) == 5


def test_a_lost_part_fails_the_save_and_a_retry_does_not(url: str) -> None:
    """C039: what the store does not show is not committed; what is tried again is there once."""
    store = Counting(url)
    save(store, 10)
    store.drops = "-00001"
    with pytest.raises(CheckpointError, match="has nothing of it"):
        save(store, 20)
    store.drops, store.num_refused = None, 2
    assert newest_step(Shelf(store, RUN)) == 10
    num_before = len(store.list())
    save(store, 30)
    assert len(store.list()) == 2 * num_before
    assert newest_step(Shelf(store, RUN)) == 30


def test_keys_use_one_kind_of_slash(store: Store) -> None:
    """C045: whatever the run is called, its objects lie under one name, and only ``/`` parts."""
    run_id = r"C:\runs\..\gpt"
    save(store, 10, run_id)
    assert newest_step(Shelf(store, run_id)) == 10
    keys = store.list()
    assert not any(set(key) & set("\\:") for key in keys)
    assert len({key.partition("/")[0] for key in keys}) == 1


TWENTY_SAVES = """
import sys
from costlens.protect.shelf import Shelf
from costlens.storage.store import Store
from tests.contract.saves import newest_step, save
url, run_id, first = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = Store(url)
for step in range(first, first + 20):
    save(store, step, run_id)
    Shelf(store, run_id).prune(2)
    assert newest_step(Shelf(store, run_id)) == step
"""


@pytest.mark.parametrize("place", SEEN_BY_ALL, indirect=True)
def test_two_runs_save_side_by_side(url: str) -> None:
    """C040: two processes, one place, 20 saves each: each always finds its own newest."""
    runs = {"a": 1, "b": 1001}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", TWENTY_SAVES, url, run_id, str(first)],
            cwd=Path(__file__).parents[2],
        )
        for run_id, first in runs.items()
    ]
    assert [process.wait() for process in processes] == [0, 0]
    for run_id, first in runs.items():
        shelf = Shelf(Store(url), run_id)
        assert [name.step for name in shelf.names()] == [first + 19, first + 18]
        assert newest_step(shelf) == first + 19


@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_links_that_lead_nowhere_are_passed_over(store: Store, url: str) -> None:
    """C035: ``last`` links to nothing and to itself, beside step 40."""
    save(store, 40)
    manifests = Path(url) / manifest_key(RUN)
    for name in ("last", "last.json", f"{CheckpointName.new(50, 1, 0.0)}.json"):
        (manifests / name).symlink_to(manifests / name)
    (manifests / f"{CheckpointName.new(60, 1, 0.0)}.json").symlink_to(manifests / "missing")
    assert newest_step(Shelf(store, RUN)) == 40


PICKLE = b"cposix\nsystem\n(S'touch %s'\ntR."


@pytest.mark.parametrize("place", SEEN_BY_ALL, indirect=True)
def test_nothing_in_a_store_is_run(store: Store, tmp_path: Path) -> None:
    """C152: a pickle that a stranger committed, with right digests, is passed over and not run."""
    save(store, 10)
    marker = tmp_path / "marker"
    name, pickled = CheckpointName.new(20, 1, time.time()), PICKLE % str(marker).encode()
    committer = Committer(store, RUN)
    shard = committer.write_shard(name, 0, pickled, memoryview(b""))
    committer.commit(name, manifest_of(name, shard))
    shelf = Shelf(store, RUN)
    assert newest_step(shelf) == 10
    assert [(each.name, each.is_final) for each in shelf.rejections] == [(name, False)]
    assert "cannot be loaded safely" in shelf.rejections[0].reason
    assert not marker.exists()


def test_a_manifest_is_itself_again(store: Store) -> None:
    """What a reader gets is what was committed, field by field."""
    name = save(store, 10)
    manifest = Shelf(store, RUN).read(name).manifest
    assert Manifest.parse(manifest.model_dump_json().encode()) == manifest
    assert manifest.num_bytes == sum(store.sizes(folder_of(RUN, name)).values())
