"""What workers spend in collate_fn: timed in them, and the loader has its own function back."""

from __future__ import annotations

import pickle
import time

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from costlens.observe.collate_timer import CollateTimer, TimedCollate
from costlens.observe.loading import TrainingLoader

DATA = TensorDataset(torch.arange(8.0))
SLOW_S = 0.05


def collate_slowly(samples: list[tuple[torch.Tensor]]) -> torch.Tensor:
    """Put a batch together, after a while."""
    time.sleep(SLOW_S)
    return torch.stack([sample for (sample,) in samples])


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_time_what_they_collate(context: str) -> None:
    """However workers come to be: four batches of 50 ms each, and batches as ever."""
    timer = CollateTimer()
    loader = DataLoader(
        DATA,
        batch_size=2,
        num_workers=2,
        collate_fn=collate_slowly,
        multiprocessing_context=context,
    )
    with timer.around(loader):
        iterator = iter(loader)
    assert loader.collate_fn is collate_slowly
    batches = list(iterator)
    assert torch.cat(batches).tolist() == list(range(8))
    assert (timer.read_s() or 0.0) >= 4 * SLOW_S


def test_a_loader_without_workers_is_left_alone() -> None:
    """There the training thread is looked at, and nothing is timed in its way."""
    timer = CollateTimer()
    loader = DataLoader(DATA, collate_fn=collate_slowly)
    with timer.around(loader):
        assert loader.collate_fn is collate_slowly
    with timer.around([1, 2]):
        pass
    assert timer.read_s() is None


def test_the_function_is_back_after_an_error() -> None:
    """An iterator that cannot be made leaves the loader as it was; two timers time once."""
    timer = CollateTimer()
    loader = DataLoader(DATA, num_workers=1, collate_fn=collate_slowly)
    with timer.around(loader), timer.around(loader):
        assert isinstance(loader.collate_fn, TimedCollate)
        assert loader.collate_fn.function is collate_slowly
    broken = timer.around(loader)
    broken.__enter__()
    assert not broken.__exit__(ValueError, ValueError("planted"), None), "it is passed on"
    assert loader.collate_fn is collate_slowly


def test_errors_of_the_function_are_its_own() -> None:
    """What it raises goes on, in a copy that has nowhere to count as well."""

    def fail(_samples: object) -> None:
        raise KeyError("own")

    for timed in (TimedCollate(fail, None), TimedCollate(sum, None)):
        if timed.function is fail:
            with pytest.raises(KeyError, match="own"):
                timed([1])
        else:
            assert pickle.loads(pickle.dumps(timed))([1, 2]) == 3


def test_only_the_training_data_is_timed() -> None:
    """The loader of a validation, of other data, keeps its own function while it is iterated."""
    known = TrainingLoader()
    known.see(iter(DataLoader(DATA)), 0)
    other = DataLoader(TensorDataset(torch.zeros(2)), num_workers=1, collate_fn=collate_slowly)
    with known.around(other):
        assert other.collate_fn is collate_slowly
    own = DataLoader(DATA, num_workers=1, collate_fn=collate_slowly)
    with known.around(own):
        assert isinstance(own.collate_fn, TimedCollate)
    part = known.part()
    assert part is not None
    assert part.collate_s == 0
