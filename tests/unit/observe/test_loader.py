"""Watched loaders behave as the loaders they watch."""

from __future__ import annotations

import collections
import copy
import gc
import pickle
import weakref
from typing import NamedTuple

import pytest
import torch
import torch._dynamo  # loads with the first watch and sets a variable: here, in no test
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, TensorDataset

from costlens.config import Config
from costlens.errors import ConfigError
from costlens.observe.loader import SizedWatchedLoader, WatchedLoader, unwatch
from costlens.protect.loader_position import follow
from costlens.run import Run
from costlens.testing import FakeClock


@pytest.fixture
def run():
    """An open run on a fake clock."""
    run = Run(Config(summary=False), clock=FakeClock(), exporters=[]).open()
    yield run
    run.finish()


@pytest.fixture
def loader():
    """Five batches of two."""
    return DataLoader(TensorDataset(torch.arange(10.0)), batch_size=2)


def _values(batches):
    return [batch.tolist() for (batch,) in batches]


class Stream(IterableDataset):
    """Three samples, and no length."""

    def __iter__(self):
        return iter([torch.tensor(1.0)] * 3)


def test_a_watched_loader_gives_what_the_loader_gives_again_and_again(run, loader):
    """Every pass has all batches in order, like the loader itself."""
    watched = run.batches(loader)
    assert _values(watched) == _values(watched) == _values(loader)


def test_attributes_are_the_loaders_own(run):
    """Length, dataset, samplers and set_epoch are read from the loader and written to it."""
    dataset = TensorDataset(torch.arange(10.0))
    sampler = DistributedSampler(dataset, num_replicas=2, rank=0)
    loader = DataLoader(dataset, batch_size=2, sampler=sampler)
    watched = run.batches(loader)
    assert len(watched) == len(loader) == 3
    assert watched.dataset is dataset
    assert watched.sampler is sampler
    assert watched.batch_sampler is loader.batch_sampler
    watched.sampler.set_epoch(3)
    assert sampler.epoch == 3
    watched.note = "mine"
    assert loader.note == "mine"
    del watched.note
    assert not hasattr(loader, "note")
    with pytest.raises(AttributeError, match="no_such"):
        _ = watched.no_such


def test_length_is_probed_as_on_the_loader(run):
    """Both hasattr and len say what they say for the loader, sized, unsized or unknown."""
    assert isinstance(run.batches([1, 2]), SizedWatchedLoader)
    assert len(run.batches([1, 2])) == 2
    assert not run.batches([])
    generator = run.batches(number for number in range(3))
    assert type(generator) is WatchedLoader
    assert not hasattr(generator, "__len__")
    assert bool(generator)
    assert list(generator) == [0, 1, 2]
    unsized = run.batches(DataLoader(Stream()))
    with pytest.raises(TypeError):
        len(unsized)
    assert len(list(unsized)) == 3


def test_copies_and_pickles_are_of_the_loader(run, loader):
    """A copy is an ordinary loader: it watches nothing and needs no run."""
    watched = run.batches(loader)
    for copied in (copy.copy(watched), copy.deepcopy(watched), pickle.loads(pickle.dumps(watched))):
        assert type(copied) is DataLoader
        assert copied is not loader
        assert _values(copied) == _values(loader)


def test_a_watched_loader_is_not_watched_twice(run, loader):
    """batches(batches(loader)) is batches(loader)."""
    twice = run.batches(run.batches(loader))
    assert type(twice._loader) is DataLoader
    assert _values(twice) == _values(loader)


def test_after_the_run_the_loader_goes_on_unwatched(run, loader):
    """A pass that outlives the run, and one that begins after it, give all batches."""
    watched = run.batches(loader)
    under_way = iter(watched)
    next(under_way)
    run.finish()
    assert len(list(under_way)) == 4
    assert _values(watched) == _values(loader)


def test_a_run_that_is_off_passes_batches_on():
    """COSTLENS_ENABLED=0: the loop is the same, and a device= still moves the batch."""
    run = Run(Config(enabled=False)).open()
    moved = list(run.batches([torch.ones(2)], device="meta"))
    assert moved[0].device.type == "meta"


def test_what_cannot_be_iterated_is_refused(run):
    """The error says what is allowed."""
    with pytest.raises(ConfigError, match="iterable of batches, not int"):
        run.batches(3)
    with pytest.raises(ConfigError, match=r"run\.batches\(loader\)"):
        run.watch(torch.nn.Linear(1, 1), loader=[1, 2])


class Pair(NamedTuple):
    """A batch of two."""

    first: object
    second: object


def test_batches_of_every_shape_are_moved(run):
    """Tensors in dictionaries, lists, tuples, named tuples and dataclasses; the rest stays."""
    from costlens.observe.transfer import move
    from tests.adapters.plain.test_numerics import Answer

    one = torch.ones(1)
    batch = collections.OrderedDict(
        ids=one, pair=Pair(one, "name"), several=[one, (one, 3)], answer=Answer(one), text="text"
    )
    moved = move(batch, torch.device("meta"))
    assert type(moved) is collections.OrderedDict
    assert type(moved["pair"]) is Pair
    assert moved["pair"].second == "name"
    assert moved["several"][1][1] == 3
    assert moved["text"] == "text"
    tensors = [moved["ids"], moved["pair"].first, *moved["several"][:1], moved["several"][1][0]]
    tensors.append(moved["answer"].logits)
    assert all(tensor.is_meta for tensor in tensors)
    assert not batch["ids"].is_meta
    assert not batch["answer"].logits.is_meta


# The user's own DataLoader, watched by watch(loader=).


def _watch(run, loader):
    run.watch(torch.nn.Linear(1, 1), loader=loader)
    return run._plain_loop()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"num_workers": 2},
        {"num_workers": 2, "persistent_workers": True},
    ],
    ids=["no workers", "workers", "persistent workers"],
)
def test_a_dataloader_gives_the_same_and_its_class_stays(run, settings):
    """Three epochs of the user's loop; every fetch is seen; other loaders are not."""
    plain = vars(DataLoader)["__iter__"], vars(DataLoader)["_get_iterator"]
    loader = DataLoader(TensorDataset(torch.arange(10.0)), batch_size=2, **settings)
    loop = _watch(run, loader)
    for _ in range(3):
        assert _values(loader) == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    # An epoch: the iterator, five batches, and the call that finds the end; persistent workers are
    # reset for the second and the third epoch.
    assert loop._num_fetches == 3 * 7
    assert list(DataLoader(TensorDataset(torch.ones(2))))
    assert loop._num_fetches == 3 * 7
    assert plain == (vars(DataLoader)["__iter__"], vars(DataLoader)["_get_iterator"])
    assert run.parts.timeline.depth == 0


def test_persistent_workers_that_run_already_are_watched(run):
    """watch() after the first epoch: the iterator that exists is seen from then on."""
    loader = DataLoader(
        TensorDataset(torch.arange(4.0)), batch_size=2, num_workers=1, persistent_workers=True
    )
    list(loader)
    loop = _watch(run, loader)
    list(loader)
    assert loop._num_fetches == 1 + 2 + 1


def test_an_iterator_goes_when_the_users_loop_lets_go_of_it(run):
    """Watching adds no cycle: leaving a loop early stops its workers at once, not at some time."""
    loader = DataLoader(TensorDataset(torch.arange(40.0)), num_workers=1)
    _watch(run, loader)
    gc.disable()
    try:
        iterator = iter(loader)
        next(iterator)
        (worker,) = iterator._workers
        grave = weakref.ref(iterator)
        del iterator
        assert grave() is None
        worker.join(10)
        assert not worker.is_alive()
    finally:
        gc.enable()


def test_copies_and_pickles_of_a_watched_dataloader_are_plain(run, loader):
    """A copy or pickle is a loader of its own that reports nowhere, during the run and after."""
    loop = _watch(run, loader)
    for copied in (copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))):
        before = loop._num_fetches
        assert _values(copied) == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
        assert loop._num_fetches == before
        assert copied._get_iterator.__self__ is copied
    run.finish()
    assert "_get_iterator" not in vars(loader)
    assert _values(loader) == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]


def test_a_replaced_method_is_still_called_and_comes_back(run, loader):
    """Another tool has replaced the same method on the same object: both work, theirs stays."""
    calls = []

    def theirs():
        calls.append(1)
        return DataLoader._get_iterator(loader)

    loader._get_iterator = theirs
    loop = _watch(run, loader)
    list(loader)
    assert calls == [1]
    assert loop._num_fetches == 7
    run.finish()
    assert vars(loader)["_get_iterator"] is theirs


@pytest.mark.parametrize("is_watched_first", [True, False])
@pytest.mark.parametrize("persistent", [False, True])
def test_watched_and_followed_loaders_are_both(run, is_watched_first, persistent):
    """A loader that is watched for its waits and followed for its place does both, in any order.

    Taking one of the two off leaves the other, and taking both off leaves the loader's own method.
    """
    data = TensorDataset(torch.arange(10.0))
    options = {"num_workers": 1, "persistent_workers": True} if persistent else {}
    loader = DataLoader(data, batch_size=2, **options)
    loop = run._plain_loop()

    if is_watched_first:
        run.watch(torch.nn.Linear(1, 1), loader=loader)
    position = follow(loader, print)
    run.watch(torch.nn.Linear(1, 1), loader=loader)
    for epoch in (1, 2):
        iterator = iter(loader)
        for _ in range(3):
            next(iterator)
        assert position.state()["num_batches"] == 3
        list(iterator)
        assert position.num_passes == epoch
    assert loop._num_fetches == 2 * (1 + 6)
    loop.find(loader).remove()
    next(iter(loader))
    assert position.state()["num_batches"] == 1
    position.remove()
    assert len(list(loader)) == 5


def test_unwatched_is_the_loader_itself(run, loader):
    """What follows a loader gets it from inside the watched one."""
    assert unwatch(run.batches(loader)) is loader
    assert unwatch(loader) is loader
