"""Several ranks keep one checkpoint: all shards or none, and a resume on all ranks or none."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from costlens.errors import CheckpointError, StorageError
from costlens.protect.agreement import LocalBoard
from costlens.protect.commit import Committer
from costlens.protect.group_keeper import GroupKeeper
from costlens.protect.manifest import CheckpointName, MisfitError
from costlens.protect.meeting import Meeting
from costlens.protect.replicas import Replicas
from costlens.protect.shards import ShardExchange
from costlens.protect.shelf import Shelf
from costlens.protect.snapshot import HostBuffer
from costlens.protect.writer import Published
from costlens.storage.store import Store

RUN = "gpt-small"
FACTS: dict[str, object] = {"checkpoint_url": "here", "resume": "auto"}
PATIENCE_S = 30.0


def name_of(step: int) -> CheckpointName:
    """Return the name that all ranks give to a step."""
    return CheckpointName(step, 1, "20260729T101500", f"{step:08x}")


class Source:
    """A state that takes what another number of ranks has saved, where it is told to."""

    def __init__(self) -> None:
        self.refusal: str | None = None
        self.num_renewed = 0

    def layout(self) -> Any:
        if self.refusal is not None:
            raise MisfitError(self.refusal)
        return lambda _: None

    def renew(self, tree: Any) -> None:
        self.num_renewed += 1


class Job:
    """The keepers of some ranks, each with a store of its own to the same place."""

    def __init__(self, places: list[Path]) -> None:
        self.board = LocalBoard()
        self.stores = [Store(str(place)) for place in places]
        self.sources = [Source() for _ in places]
        self.keepers = [self._make(rank) for rank in range(len(places))]

    def _make(self, rank: int) -> GroupKeeper:
        num, store = len(self.stores), self.stores[rank]
        return GroupKeeper(
            Committer(store, RUN, sleep=lambda _: None),
            Shelf(store, RUN),
            2,
            lambda: {"run_id": RUN, "costlens_version": "0"},
            meeting=Meeting(self.board, rank, num, patience_s=PATIENCE_S),
            exchange=ShardExchange(store, RUN, self.board, rank, num, patience_s=PATIENCE_S),
            replicas=Replicas(self.board, rank),
        )

    def each(self, act: Callable[[GroupKeeper], Any]) -> list[Any]:
        """Return what every rank gets, at the same time; its error where it raises."""

        def attempt(keeper: GroupKeeper) -> Any:
            try:
                return act(keeper)
            except (CheckpointError, StorageError) as error:
                return error

        with ThreadPoolExecutor(len(self.keepers)) as pool:
            return [*pool.map(attempt, self.keepers)]

    def save(self, step: int, *, without: int | None = None) -> list[Any]:
        """Save a state that is different on every rank, and return what came of it."""

        def publish(keeper: GroupKeeper) -> Any:
            rank = keeper.meeting.rank
            if rank == without:
                return None
            tree = self.state(rank, step)
            return keeper.publish(name_of(step), "interval", HostBuffer().take(tree), 5.0)

        return [
            each.num_retries if isinstance(each, Published) else each for each in self.each(publish)
        ]

    def state(self, rank: int, step: int) -> Any:
        """Return what a rank saves."""
        return {"weight": torch.full((50,), float(1000 * rank + step))}

    def load(self) -> list[Any]:
        """Return the first number of what every rank would go on from."""

        def first(keeper: GroupKeeper) -> Any:
            loaded = keeper.load(self.sources[keeper.meeting.rank])
            return None if loaded is None else int(loaded.tree["weight"][0])

        return self.each(first)

    @property
    def shelf(self) -> Shelf:
        """Return what rank 0 reads."""
        return self.keepers[0].shelf

    @property
    def left(self) -> list[str]:
        """Return all data objects."""
        return self.stores[0].list(f"{RUN}/data")


@pytest.fixture(name="job")
def _job(tmp_path: Path) -> Job:
    return Job([tmp_path] * 3)


def test_a_checkpoint_has_the_shards_of_all_ranks(job: Job) -> None:
    """Each rank goes on from its own part of the newest."""
    assert job.save(10) == [0, 0, 0]
    assert job.save(20) == [0, 0, 0]
    manifest = job.shelf.verify(name_of(20)).manifest
    assert [shard.rank for shard in manifest.shards] == [0, 1, 2]
    assert job.load() == [20, 1020, 2020]


def test_without_one_shard_there_is_no_checkpoint(job: Job) -> None:
    """C033: a rank that is gone is named after the deadline; what the others wrote is removed."""
    job.keepers[0].exchange.patience_s = 2.0
    found = job.save(10, without=1)
    assert found[1] is None
    assert all("rank 1 of 3 told of no shard within 2 s" in str(found[rank]) for rank in (0, 2))
    assert job.shelf.names() == []
    assert job.left == []


@pytest.mark.parametrize("broken", [0, 2])
def test_a_rank_whose_store_refuses_fails_the_save_for_all(job: Job, broken: int) -> None:
    """C037: nobody waits for the deadline; the rank and the reason are told; nothing is left."""

    def refuse(*_: object, **__: object) -> None:
        raise StorageError(28, "No space left on device")

    job.keepers[broken].committer.store.put_many = refuse  # type: ignore[method-assign]
    found = job.save(10)
    assert isinstance(found.pop(broken), StorageError)
    assert all(f"rank {broken}" in str(each) and "No space left" in str(each) for each in found)
    assert job.shelf.names() == []
    assert job.left == []


def test_what_may_be_committed_is_never_removed(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """C039: the manifest is there, and its writer was told that it is not: the data stay whole."""
    commit = job.keepers[0].committer.commit

    def commit_and_lose(*arguments: Any) -> str:
        commit(*arguments)
        raise StorageError(110, "Connection timed out")

    monkeypatch.setattr(Committer, "commit", lambda _, *arguments: commit_and_lose(*arguments))
    found = job.save(10)
    assert isinstance(found[0], StorageError)
    assert found[1:] == [0, 0], "the others find it in the store"
    assert job.shelf.verify(name_of(10))


def test_ranks_outlive_a_rank_0_that_has_gone(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """It committed and took the board with it: the store says that the checkpoint exists."""
    monkeypatch.setattr(ShardExchange, "tell_saved", lambda *_: None)
    read = job.board.read

    def lose(key: str) -> str | None:
        if key.endswith("/outcome") and job.shelf.names():
            raise RuntimeError("connection reset")
        return read(key)

    job.board.read = lose  # type: ignore[method-assign]
    assert job.save(10) == [0, 0, 0]


def test_all_ranks_go_back_where_one_shard_is_bad(job: Job) -> None:
    """The newest is whole for two ranks of three: all take the one before, and know why."""
    job.save(10)
    job.save(20)
    key = f"{RUN}/data/{name_of(20)}/r00001-00000"
    data = bytearray(job.stores[0].read(key) or b"")
    data[3] ^= 1
    job.stores[0].put(key, data)
    assert job.load() == [10, 1010, 2010]
    for keeper in job.keepers:
        (rejection,) = keeper.shelf.rejections
        assert rejection.name == name_of(20)
        assert "rank 1: r00001-00000 is not what was written" in rejection.reason
    assert job.load() == [10, 1010, 2010], "it is marked, and not tried again"
    assert job.shelf.rejections == []


def test_nothing_to_resume_is_a_fresh_start_on_all(job: Job) -> None:
    """An empty place, and a save that was never committed."""
    job.stores[0].put(f"{RUN}/data/{name_of(10)}/r00000-00000", b"half")
    assert job.load() == [None] * 3


def test_another_number_of_ranks_goes_on_from_it(job: Job, tmp_path: Path) -> None:
    """Each takes one part; a rank that was not there one of the others, with draws of its own."""
    job.save(10)
    fewer, more = Job([tmp_path] * 2), Job([tmp_path] * 4)
    assert fewer.load() == [10, 1010]
    assert more.load() == [10, 1010, 2010, 10]
    assert [source.num_renewed for source in more.sources] == [0, 0, 0, 1]
    found = more.each(lambda keeper: keeper.load(more.sources[keeper.meeting.rank]))
    assert found[0].inexact == [
        "random numbers: saved by 3 ranks and resumed by 4, so other draws follow"
    ]


def test_another_number_of_ranks_is_refused_where_it_cannot_be(job: Job, tmp_path: Path) -> None:
    """The reason is told on every rank, nothing older is taken instead, and nothing is marked."""
    job.save(10)
    other = Job([tmp_path] * 2)
    other.sources[1].refusal = "it is counted in batches"
    found = other.load()
    assert all("it is counted in batches" in str(error) for error in found)
    assert all(isinstance(error, CheckpointError) for error in found)
    assert job.load() == [10, 1010, 2010]


class Replicated(Job):
    """Ranks that train one model, each with random numbers of its own."""

    def state(self, rank: int, step: int) -> Any:
        weight = torch.arange(20_000.0) + step
        layers = {str(number): weight * number for number in range(3)}
        return {"weight": layers, "rng": torch.full((300,), float(rank)), "buffer": weight[:5]}

    def trees(self) -> list[Any]:
        """Return what every rank would go on from."""
        return self.each(lambda keeper: keeper.load(self.sources[keeper.meeting.rank]).tree)


def test_what_ranks_hold_alike_is_written_once(tmp_path: Path) -> None:
    """The others write what differs, and each goes on from exactly what it had."""
    job = Replicated([tmp_path] * 3)
    assert job.save(10) == [0, 0, 0]
    shards = job.shelf.verify(name_of(10)).manifest.shards
    written = [sum(part.num_bytes for part in shard.data) for shard in shards]
    assert written == [shards[0].num_bytes, 1200, 1200]
    assert [shard.base for shard in shards] == [None, 0, 0]
    for rank, tree in enumerate(job.trees()):
        expected = job.state(rank, 10)
        assert torch.equal(tree["rng"], expected["rng"])
        assert torch.equal(tree["buffer"], expected["buffer"])
        assert all(torch.equal(tree["weight"][key], expected["weight"][key]) for key in "012")


def test_ranks_that_hold_nothing_alike_write_all_of_it(tmp_path: Path) -> None:
    """Another model, another layout, or more than an eighth that differs: nothing is shared."""

    class Unlike(Replicated):
        def state(self, rank: int, step: int) -> Any:
            extra = {"own": torch.ones(10_000 * rank)} if rank == 2 else {}
            scale = 1.0 if rank != 1 else 2.0
            tree = super().state(rank, step)
            return {**extra, **tree, "weight": {k: v * scale for k, v in tree["weight"].items()}}

    job = Unlike([tmp_path] * 3)
    assert job.save(10) == [0, 0, 0]
    shards = job.shelf.verify(name_of(10)).manifest.shards
    assert [shard.base for shard in shards] == [None, None, None]
    for rank, tree in enumerate(job.trees()):
        assert torch.equal(tree["weight"]["2"], job.state(rank, 10)["weight"]["2"])


def test_what_is_shared_fails_for_all_that_share_it(tmp_path: Path) -> None:
    """C033: a byte of what rank 0 wrote has flipped: no rank goes on from that checkpoint."""
    job = Replicated([tmp_path] * 2)
    job.save(10)
    job.save(20)
    key = f"{RUN}/data/{name_of(20)}/r00000-00000"
    data = bytearray(job.stores[0].read(key) or b"")
    data[3] ^= 1
    job.stores[0].put(key, data)
    expected = job.state(0, 10)["weight"]["1"]
    assert all(torch.equal(tree["weight"]["1"], expected) for tree in job.trees())


def test_ranks_write_all_where_rank_0_cannot_be_heard(tmp_path: Path) -> None:
    """The board is out of reach: each is as whole as before, and the save exists."""
    job = Replicated([tmp_path] * 2)
    read = job.board.read

    def lose(key: str) -> str | None:
        if key.endswith("/replicas"):
            raise RuntimeError("connection reset")
        return read(key)

    job.board.read = lose  # type: ignore[method-assign]
    assert job.save(10) == [0, 0]
    assert [s.base for s in job.shelf.verify(name_of(10)).manifest.shards] == [None, None]


def test_a_state_that_does_not_fit_one_rank_is_restored_on_none(job: Job) -> None:
    """The rank has its own error, the others learn whose it is."""
    numbers = itertools.count()

    def restore(keeper: GroupKeeper) -> Any:
        def put_back() -> list[str]:
            if keeper.meeting.rank == 2:
                raise CheckpointError("the model has another layer")
            return [f"done {next(numbers)}"]

        return keeper.restore(put_back)

    found = job.each(restore)
    assert str(found[2]) == "the model has another layer"
    assert all("rank 2: the model has another layer" in str(each) for each in found[:2])


def test_ranks_that_see_different_places_are_told_at_the_start(tmp_path: Path) -> None:
    """A local path on two machines is two places: no save would ever be whole."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    job = Job([tmp_path / "a", tmp_path / "b"])
    job.keepers[1].exchange.sleep = lambda _: None  # it looks again for some seconds
    for error in job.each(lambda keeper: keeper.check_place(FACTS)):
        assert "is not one place for all ranks" in str(error)
        assert "not seen by rank 1" in str(error)
    assert job.stores[0].list("") == [], "the probe is gone"


def test_ranks_with_different_settings_are_told_at_the_start(job: Job) -> None:
    """The setting, both values and the rank."""

    def check(keeper: GroupKeeper) -> None:
        own = "never" if keeper.meeting.rank == 1 else "auto"
        keeper.check_place({**FACTS, "resume": own})

    for error in job.each(check):
        assert "resume is 'never' on rank 1 and 'auto' on rank 0" in str(error)


def test_a_place_that_one_rank_cannot_write_is_told_at_the_start(job: Job) -> None:
    """C038: before the first step, on that rank as the store says it, elsewhere with the rank."""

    def refuse(*_: object, **__: object) -> bool:
        raise StorageError(13, "Permission denied")

    job.stores[2].create = refuse  # type: ignore[method-assign]
    found = job.each(lambda keeper: keeper.check_place(FACTS))
    assert isinstance(found[2], StorageError)
    assert all("rank 2" in str(each) and "Permission denied" in str(each) for each in found[:2])


def test_equal_ranks_of_one_place_may_begin(job: Job) -> None:
    """Nothing is left behind by the check."""
    assert job.each(lambda keeper: keeper.check_place(FACTS)) == [None] * 3
    assert job.stores[0].list("") == []
