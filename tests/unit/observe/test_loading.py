"""The loader that is trained from: its settings, its passes, and what they begin with."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from costlens.core.clock import NS_PER_S
from costlens.core.pass_waits import PassWaits
from costlens.observe.loading import TrainingLoader

DATA = TensorDataset(torch.zeros(8, 2))


def test_settings_are_those_of_the_first_loader() -> None:
    """What the DataLoader was made with; one of other data that comes later changes nothing."""
    loader = TrainingLoader()
    assert loader.part() is None
    options: dict[str, Any] = {"num_workers": 1, "prefetch_factor": 3, "persistent_workers": True}
    loader.see(iter(DataLoader(DATA, batch_size=4, **options)), 0)
    loader.see(iter(DataLoader(TensorDataset(torch.zeros(2, 2)), batch_size=1)), 0)
    part = loader.part()
    assert part is not None
    assert part.model_dump() == {
        **options,
        "pin_memory": False,
        "batch_size": 4,
        "num_passes": 1,
        "first_wait_s": 0.0,
        "collate_s": None,
    }


def test_a_loader_without_workers_keeps_nothing_ready() -> None:
    """No workers is 0, and what only workers have is absent."""
    loader = TrainingLoader()
    loader.see(iter(DataLoader(DATA, batch_size=None)), 0)
    part = loader.part()
    assert part is not None
    assert (part.num_workers, part.prefetch_factor, part.batch_size) == (0, None, None)


def test_other_iterables_tell_nothing() -> None:
    """A generator has no settings."""
    loader = TrainingLoader()
    loader.see(iter([1, 2]), 0)
    assert loader.part() is None


def test_passes_are_counted_once_and_their_first_waits_added_up() -> None:
    """Told twice at one iteration a pass is one; the first one's wait is start-up."""
    waits = PassWaits()
    for number in (0, 0, 10, 20):
        waits.begin(number)
    for number in range(30):
        waits.take(number, NS_PER_S)
    assert (waits.num_passes, waits.wait_ns) == (3, 2 * NS_PER_S)


def test_marks_are_bounded() -> None:
    """Passes whose iterations never come do not pile up."""
    waits = PassWaits()
    for number in range(5000):
        waits.begin(number)
    assert waits.num_passes == 5000
    assert len(waits._marks) <= 1024
