"""The place in a loader: found again to the sample, for every way to sample, or named if not."""

from __future__ import annotations

import copy
import gc
import pickle
import random
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)
from torchdata.stateful_dataloader import StatefulDataLoader

from costlens.protect import position as positions
from costlens.protect.loader_position import Position, follow
from costlens.protect.rng import capture_rng, restore_rng
from costlens.protect.snapshot import HostBuffer, load_tree

NUM_SAMPLES = 22
NUM_PASSES = 3


def make_data(num_samples: int = NUM_SAMPLES) -> TensorDataset:
    """Return samples that are their own index."""
    return TensorDataset(torch.arange(num_samples))


class NumpySampler(Sampler[int]):
    """Keeps a generator of its own that goes on from pass to pass."""

    def __init__(self) -> None:
        self.stream = np.random.default_rng(torch.initial_seed())

    def __iter__(self) -> Iterator[int]:
        return iter(self.stream.permutation(NUM_SAMPLES).tolist())

    def __len__(self) -> int:
        return NUM_SAMPLES


class EagerSampler(Sampler[int]):
    """Draws its permutation from the process's stream when it is asked for an iterator."""

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(NUM_SAMPLES).tolist())

    def __len__(self) -> int:
        return NUM_SAMPLES


class DrawingSampler(Sampler[int]):
    """Draws each index from Python's stream when it is asked, as the training goes."""

    def __iter__(self) -> Iterator[int]:
        return (random.randrange(NUM_SAMPLES) for _ in range(NUM_SAMPLES))

    def __len__(self) -> int:
        return NUM_SAMPLES


def _seeded() -> torch.Generator:
    return torch.Generator().manual_seed(torch.initial_seed())


LOADERS: dict[str, Callable[..., Any]] = {
    "ordered": lambda **k: DataLoader(make_data(), 4, **k),
    "shuffled": lambda **k: DataLoader(make_data(), 4, shuffle=True, **k),
    "drop_last": lambda **k: DataLoader(make_data(), 4, shuffle=True, drop_last=True, **k),
    "generator": lambda **k: DataLoader(make_data(), 4, shuffle=True, generator=_seeded(), **k),
    "replacement": lambda **k: DataLoader(
        make_data(),
        4,
        sampler=RandomSampler(make_data(), replacement=True, num_samples=90, generator=_seeded()),
        **k,
    ),
    "weighted": lambda **k: DataLoader(
        make_data(), 4, sampler=WeightedRandomSampler([0.1, 0.9] * 11, 20), **k
    ),
    "subset": lambda **k: DataLoader(
        make_data(), 4, sampler=SubsetRandomSampler(range(3, 20), generator=_seeded()), **k
    ),
    "batch_sampler": lambda **k: DataLoader(
        make_data(), batch_sampler=BatchSampler(RandomSampler(make_data()), 5, False), **k
    ),
    "no batches": lambda **k: DataLoader(make_data(6), None, shuffle=True, **k),
    "eager": lambda **k: DataLoader(make_data(), None, sampler=EagerSampler(), **k),
    "numpy": lambda **k: DataLoader(make_data(), 4, sampler=NumpySampler(), **k),
    "distributed": lambda **k: DataLoader(
        make_data(),
        2,
        sampler=DistributedSampler(make_data(), num_replicas=2, rank=1, seed=3),
        **k,
    ),
    "stateful": lambda **k: StatefulDataLoader(make_data(), 4, shuffle=True, **k),
    "stateful sampler": lambda **k: StatefulDataLoader(
        make_data(), 4, sampler=RandomSampler(make_data(), generator=_seeded()), **k
    ),
    "stateful generator": lambda **k: StatefulDataLoader(
        make_data(), 4, shuffle=True, generator=_seeded(), **k
    ),
}
POINTS = {"begun": (1, 0), "mid": (1, 3), "last": (1, -1), "end": (1, None), "fresh": (0, None)}
WITH_WORKERS = [
    *("shuffled", "generator", "replacement", "batch_sampler", "no batches", "stateful"),
    "eager",
    "stateful sampler",
]
ROWS = [
    *((name, 0, False, point) for name in LOADERS for point in POINTS),
    *((name, 2, False, point) for name in WITH_WORKERS for point in ("mid", "end")),
    *((name, 2, True, point) for name in ("shuffled", "stateful") for point in ("last", "end")),
    ("shuffled", 2, True, "mid"),
]


class Training:
    """Passes over a loader that draw a random number a batch and one between passes."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader
        self.reports: list[str] = []
        self.position = follow(loader, self.reports.append)
        self.seen: list[Any] = []

    def save(self) -> Any:
        """Return the state as a checkpoint would give it back."""
        tree = {"rng": capture_rng(), "loader": self.position.state()}
        snapshot = HostBuffer().take(tree)
        return load_tree(snapshot.skeleton, snapshot.buffer.clone())

    def restore(self, tree: Any) -> list[str]:
        """Restore what :meth:`save` returned."""
        inexact = self.position.restore(tree["loader"], lambda: restore_rng(tree["rng"]))
        return inexact + restore_rng(tree["rng"])

    def run(self, point: tuple[int, int | None] | None = None) -> Any:
        """Train to the end; return the state at a point: which pass, and after which batch."""
        tree = None
        for epoch in range(self.position.num_passes, NUM_PASSES):
            sampler = getattr(self.loader, "sampler", None)
            if isinstance(sampler, DistributedSampler):
                sampler.set_epoch(epoch)
            if (epoch, None) == point == (0, None):
                tree = self._mark()
            iterator = iter(self.loader)
            torch.rand(())  # as hooks may, before the first batch is asked for
            if (epoch, 0) == point:
                tree = self._mark()
            for index, batch in enumerate(iterator, 1):
                self.seen.append((torch.as_tensor(batch[0]).tolist(), random.random()))
                self.seen.append(torch.rand(()).item())
                is_last = index == len(self.loader)
                if point in {(epoch, index), (epoch, -1 if is_last else -2)}:
                    tree = self._mark()
            self.seen.append(torch.rand(()).item())
            if (epoch, None) == point == (1, None):
                tree = self._mark()
        return tree

    def _mark(self) -> Any:
        self.num_marked = len(self.seen)
        self.told = self.position.inexact()
        return self.save()


def seed(number: int) -> None:
    """Seed what trainings draw from."""
    torch.manual_seed(number)
    random.seed(number)


@pytest.mark.parametrize(("name", "num_workers", "is_persistent", "point"), ROWS)
def test_place_is_found_again(name: str, num_workers: int, is_persistent: bool, point: str) -> None:
    """All batches and draws after the save, those of later passes too, are those of the whole run.

    The resumed loader begins with other seeds, and its start-up draws.
    """
    options = {"num_workers": num_workers, "persistent_workers": is_persistent}
    seed(1)
    whole = Training(LOADERS[name](**options))
    tree = whole.run(POINTS[point])
    seed(2)
    resumed = Training(LOADERS[name](**options))
    assert resumed.restore(tree) == []
    resumed.run()
    assert resumed.seen == whole.seen[whole.num_marked :]
    assert len(resumed.seen) > 10
    assert whole.told == resumed.reports == []


def test_indices_drawn_beside_the_training_go_on_and_are_told() -> None:
    """What a sampler drew in turn with the training cannot be drawn again; the rest follows."""

    def make() -> Training:
        return Training(DataLoader(make_data(), 4, sampler=DrawingSampler()))

    seed(1)
    whole = make()
    tree = whole.run(POINTS["mid"])
    seed(2)
    resumed = make()
    assert resumed.restore(tree) == []
    resumed.run()
    assert resumed.seen == whole.seen[whole.num_marked :]
    assert "its sampler did not give the indices" in resumed.reports[0]


@pytest.mark.parametrize("sampler", [NumpySampler(), RandomSampler(make_data())])
def test_sampler_without_a_state_in_a_stateful_loader_is_named(sampler: Any) -> None:
    """A sampler that a stateful loader can only play again, from another place, is named."""
    loader = StatefulDataLoader(make_data(), 4, sampler=sampler)
    position = follow(loader, print)
    assert position.inexact() == []
    next(iter(loader))
    text = f"its {type(sampler).__name__} has no state of its own, so other samples may follow"
    assert position.inexact() == [f"loader (StatefulDataLoader): {text}"]


@pytest.mark.parametrize("sampler", [None, DistributedSampler(make_data(), 2, 0)])
def test_sampler_that_a_stateful_loader_can_play_is_not_named(sampler: Any) -> None:
    """Samplers in order, of an epoch, or with a state of their own are exact."""
    loader = StatefulDataLoader(make_data(), 4, sampler=sampler)
    position = follow(loader, print)
    next(iter(loader))
    assert position.inexact() == []


class CountingData(Dataset[int]):
    """Knows which samples were loaded."""

    def __init__(self) -> None:
        self.loaded: list[int] = []

    def __getitem__(self, index: int) -> int:
        self.loaded.append(index)
        return index

    def __len__(self) -> int:
        return 100


def test_no_used_sample_is_loaded_again() -> None:
    """C019: a resume skips indices, not samples: only what is trained on is loaded."""
    data, other = CountingData(), CountingData()
    first = DataLoader(data, 5, shuffle=True)
    position = follow(first, print)
    iterator = iter(first)
    for _ in range(15):
        next(iterator)
    second = DataLoader(other, 5, shuffle=True)
    follow(second, print).restore(position.state(), lambda: None)
    assert len(list(second)) == 5
    assert len(other.loaded) == 25
    assert sorted(data.loaded + other.loaded) == list(range(100))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_batches_fetched_ahead_do_not_count(num_workers: int) -> None:
    """A framework that holds a batch it has not trained on gets that batch again."""
    loader = DataLoader(make_data(), 4, num_workers=num_workers)
    position = follow(loader, print)
    iterator = iter(loader)
    batches = [next(iterator)[0].tolist() for _ in range(3)]
    state = position.state(num_ahead=1)
    other = DataLoader(make_data(), 4, num_workers=num_workers)
    follow(other, print).restore(state, lambda: None)
    assert next(iter(other))[0].tolist() == batches[2]


class Stream(IterableDataset[int]):
    """Samples without indices or length that can tell their place."""

    def __init__(self) -> None:
        self.place = 0

    def __iter__(self) -> Iterator[int]:
        while self.place < NUM_SAMPLES:
            self.place += 1
            yield self.place - 1
        self.place = 0

    def state_dict(self) -> dict[str, int]:
        """Return the place."""
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go there."""
        self.place = state["place"]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_stateful_stream_fetched_ahead(num_workers: int) -> None:
    """A loader with a state of its own is asked before each fetch, for a loop that looks ahead."""
    loader = StatefulDataLoader(Stream(), 4, num_workers=num_workers)
    position = follow(loader, print, can_look_back=True)
    iterator = iter(loader)
    batches = [next(iterator).tolist() for _ in range(3)]
    state = position.state(num_ahead=1)
    other = StatefulDataLoader(Stream(), 4, num_workers=num_workers)
    follow(other, print).restore(state, lambda: None)
    assert next(iter(other)).tolist() == batches[2]


def take(loader: Any, num_batches: int, seen: list[Any] | None = None) -> Position:
    """Follow a loader and use some of its batches."""
    position = follow(loader, print)
    iterator = iter(loader)
    for _ in range(num_batches):
        batch = next(iterator)
        if seen is not None:
            seen += batch[0].tolist()
    return position


def test_other_batch_size_loses_no_sample() -> None:
    """Another batch size skips whole batches up to the samples used, and is named."""
    used: list[int] = []
    state = take(DataLoader(make_data(), 4, shuffle=True), 3, used).state()
    other = DataLoader(make_data(), 5, shuffle=True)
    told = follow(other, print).restore(state, lambda: None)
    rest = [i for (batch,) in other for i in batch.tolist()]
    assert set(used) | set(rest) == set(range(NUM_SAMPLES))
    assert len(rest) == 12
    assert told == [
        "loader (DataLoader): batch size 4 at the save and 5 now, so batches hold other samples"
    ]


def test_other_world_size_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Saved on one rank and resumed on two: each skips its half of the samples, and it is named."""
    state = take(DataLoader(make_data(), 2), 6).state()
    monkeypatch.setattr(positions, "_world_size", lambda: 2)
    other = DataLoader(make_data(), 2)
    told = follow(other, print).restore(state, lambda: None)
    assert len(list(other)) == 11 - 3
    assert told == [
        "loader (DataLoader): world size 1 at the save and 2 now, so batches hold other samples"
    ]


def test_other_number_of_workers_is_named() -> None:
    """Other workers give the same batches; a loader with its own state refuses and begins again."""
    state = take(DataLoader(make_data(), 4, shuffle=True), 3).state()
    other = DataLoader(make_data(), 4, shuffle=True, num_workers=1)
    told = follow(other, print).restore(state, lambda: None)
    assert len(list(other)) == 3
    assert told == [
        "loader (DataLoader): 0 workers at the save and 1 now, so random draws inside them differ"
    ]
    state = take(StatefulDataLoader(make_data(), 4), 3).state()
    stateful = StatefulDataLoader(make_data(), 4, num_workers=1)
    told = follow(stateful, print).restore(state, lambda: None)
    assert told[1:] == ["loader (StatefulDataLoader): for the same reason its pass begins again"]
    assert len(list(stateful)) == 6


def test_other_indices_are_reported() -> None:
    """Data that changed size gives another permutation: the resume tells when the pass begins."""
    loader = DataLoader(make_data(), 4, shuffle=True)
    state = take(loader, 3).state()
    reports: list[str] = []
    other = DataLoader(make_data(NUM_SAMPLES + 9), 4, shuffle=True)
    assert follow(other, reports.append).restore(state, lambda: None) == []
    assert reports == []
    next(iter(other))
    assert len(reports) == 1
    assert "its sampler did not give the indices that it gave before" in reports[0]


def test_another_kind_of_loader_is_named() -> None:
    """A state of a plain loader is not forced on a stateful one, nor the other way round."""
    plain, stateful = DataLoader(make_data(), 4), StatefulDataLoader(make_data(), 4)
    states = [take(plain, 2).state(), take(stateful, 2).state()]
    for loader, state in ((stateful, states[0]), (plain, states[1])):
        told = follow(loader, print).restore(state, lambda: None)
        assert told == [
            f"loader ({type(loader).__name__}): the checkpoint is of another kind of loader"
        ]
        assert len(list(loader)) == 6


def test_streams_without_a_place_are_named() -> None:
    """A stream in a plain loader begins its pass again, and says so; between passes it is exact."""
    loader = DataLoader(Stream(), 4)
    position = follow(loader, print)
    assert position.inexact() == []
    iterator = iter(loader)
    next(iterator)
    (told,) = position.inexact()
    assert told.startswith("loader (DataLoader): it has neither indices nor a state of its own")
    second = DataLoader(Stream(), 4)
    other = follow(second, print)
    assert other.restore(position.state(), lambda: None) == [
        "loader (DataLoader): its place is not known, so the pass begins again"
    ]
    list(iterator)
    assert other.restore(position.state(), lambda: None) == []
    assert other.num_passes == 1


@pytest.mark.parametrize("batches", [[1, 2], iter([1, 2]), {1: 2}])
def test_anything_else_is_named(batches: Any) -> None:
    """A list or an iterator of batches cannot tell its place."""
    position = follow(batches, print)
    assert "a resume begins its pass again" in position.inexact()[0]
    assert "its place is not known" in position.restore(position.state(), lambda: None)[0]


class Augmented(TensorDataset):
    """May draw when a sample is made."""


def test_draws_inside_workers_are_named() -> None:
    """Workers of a data set that may draw are named inside a pass, and not between two."""
    cases = [
        (DataLoader(Augmented(torch.arange(8)), 2, num_workers=1), True, False),
        (DataLoader(make_data(8), 2, num_workers=1, collate_fn=list), True, False),
        (DataLoader(make_data(8), 2, num_workers=1), False, False),
        (DataLoader(Augmented(torch.arange(8)), 2), False, False),
        (
            DataLoader(Augmented(torch.arange(8)), 2, num_workers=1, persistent_workers=True),
            True,
            True,
        ),
        (StatefulDataLoader(Augmented(torch.arange(8)), 2, num_workers=1), True, False),
    ]
    for loader, is_named_inside, is_named_after in cases:
        position = follow(loader, print)
        iterator = iter(loader)
        next(iterator)
        assert any("random draws inside" in t for t in position.inexact()) is is_named_inside
        list(iterator)
        assert any("random draws inside" in t for t in position.inexact()) is is_named_after


def test_batches_out_of_order_are_named() -> None:
    """Workers that may overtake one another leave no place to come back to."""
    loader = DataLoader(make_data(), 4, num_workers=2, in_order=False)
    assert "in_order=False" in follow(loader, print).inexact()[0]


def test_loader_stays_the_users() -> None:
    """The sampler is the user's own before, during and after a pass; copies and pickles are plain.

    Following costs no reference: the loader goes when the user lets it go.
    """
    loader = DataLoader(make_data(), 4, shuffle=True)
    sampler = loader.batch_sampler
    position = follow(loader, print)
    iterator = iter(loader)
    next(iterator)
    assert loader.batch_sampler is sampler
    assert type(loader.batch_sampler) is BatchSampler
    for twin in (copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))):
        assert len(list(twin)) == 6
        assert "_get_iterator" not in vars(twin) or twin._get_iterator.__self__ is not loader
    assert position.state()["num_batches"] == 1
    position.remove()
    assert "_get_iterator" not in vars(loader)
    gone = weakref.ref(loader)
    followed = follow(loader, print)
    del loader, iterator, sampler, twin
    gc.collect()
    assert gone() is None
    assert followed.num_passes == 0


def test_peek_before_the_loop_costs_no_pass() -> None:
    """An iterator that is dropped after a batch is no pass; the place is that of the newest."""
    loader = DataLoader(make_data(), 4)
    position = follow(loader, print)
    next(iter(loader))
    iterator = iter(loader)
    next(iterator)
    next(iterator)
    assert position.state()["num_batches"] == 2
    list(iterator)
    assert position.num_passes == 1
    assert not position.is_in_pass


def test_looking_at_a_batch_after_a_resume_is_told() -> None:
    """A look at one batch between the resume and the loop takes the resumed pass: it is told."""
    loader = DataLoader(make_data(), 4)
    state = take(loader, 2).state()
    reports: list[str] = []
    other = DataLoader(make_data(), 4)
    follow(other, reports.append).restore(state, lambda: None)
    iter(other)  # an iterator without a batch takes nothing
    assert next(iter(other))[0].tolist() == [8, 9, 10, 11]
    assert reports == []
    next(iter(other))
    assert len(reports) == 1
    assert "left after one batch; resume just before the loop" in reports[0]


@pytest.mark.parametrize("is_persistent", [False, True])
def test_going_back_in_the_same_process(is_persistent: bool) -> None:
    """A restore while a pass is under way: that pass is not followed, and the next one is exact."""
    loader = DataLoader(
        make_data(),
        4,
        shuffle=True,
        num_workers=int(is_persistent),
        persistent_workers=is_persistent,
    )
    position = follow(loader, print)
    iterator = iter(loader)
    first = [next(iterator)[0].tolist() for _ in range(2)]
    state = position.state()
    rest = [batch.tolist() for (batch,) in iterator]
    for _ in range(2):
        under_way = iter(loader)
        next(under_way)
        assert position.restore(state, lambda: None) == []
        if not is_persistent:
            next(under_way)
        assert position.state()["num_batches"] == 2
        assert [batch.tolist() for (batch,) in loader] == rest
        assert position.num_passes == 1
    assert sorted(index for batch in first + rest for index in batch) == list(range(NUM_SAMPLES))


def test_followed_twice() -> None:
    """Two followers of one loader, such as two fits, do not get in each other's way."""
    loader = DataLoader(make_data(), 4)
    first, second = follow(loader, print), follow(loader, print)
    iterator = iter(loader)
    next(iterator)
    next(iterator)
    states = [each.state() for each in (first, second)]
    assert [(s["num_batches"], s["digest"]) for s in states] == [(2, states[0]["digest"])] * 2


class FetchingAhead(DataLoader[Any]):
    """Holds a batch before it gives one out."""

    def __iter__(self) -> Any:
        batches = super().__iter__()
        last = next(batches)
        for batch in batches:
            yield last
            last = batch
        yield last


def test_loader_that_iterates_in_its_own_way_is_named() -> None:
    """A subclass with an ``__iter__`` of its own may hold batches that nobody has used."""
    loader = FetchingAhead(make_data(), 4)
    assert "may fetch ahead of what is used" in follow(loader, print).inexact()[0]
