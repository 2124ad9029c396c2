"""The plants: spins at named places that clock themselves, silent in the first iteration."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import torch

__all__ = ["PHASE_OF", "PLACES", "ClockedLoader", "PlantedDataset", "Plants", "SpinInBackward"]

PHASE_OF = {
    "dataset": "data_wait",
    "worker_startup": "data_wait",
    "transfer": "transfer",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "validation": "validation",
    "checkpoint": "checkpoint",
    "callback": "callbacks",
    "logger": "logging",
}
"""Where a delay at a place belongs."""

PLACES = tuple(PHASE_OF)


def spin_until(deadline_ns: int) -> None:
    """Keep the processor busy: after a sleep, real work runs cold and every phase gets slower."""
    while time.perf_counter_ns() < deadline_ns:
        pass


class Plants:
    """Delays at some places.

    Args:
        places: Where to spin.
        spin_ns: How long each spin takes.
    """

    def __init__(self, places: Collection[str], spin_ns: int) -> None:
        self.places = frozenset(places)
        self.spin_ns = spin_ns
        self.is_armed = False
        self.total_ns: Counter[str] = Counter()
        self.num: Counter[str] = Counter()
        self.fetch_ns = 0
        self.num_fetches = 0
        self._has_begun = False

    def begin_fetch(self) -> None:
        """Arm the plants at the second fetch: until then everything is start-up."""
        self.is_armed = self._has_begun
        self._has_begun = True

    def spin(self, place: str) -> None:
        """Spin if this place is planted and the first iteration is over."""
        if not self.is_armed or place not in self.places:
            return
        begin_ns = time.perf_counter_ns()
        spin_until(begin_ns + self.spin_ns)
        self.total_ns[place] += time.perf_counter_ns() - begin_ns
        self.num[place] += 1


class PlantedDataset(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Random vectors; reading item 0 of a batch takes longer where the dataset is planted.

    Workers are other processes: whether they spin is fixed when they start, and the truth is the
    wait measured around the fetch.
    """

    def __init__(self, num_items: int, batch_size: int, spin_ns: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.items = torch.randn(num_items, 32, generator=generator)
        self.batch_size = batch_size
        self.spin_ns = spin_ns

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.spin_ns and index % self.batch_size == 0 and index >= self.batch_size:
            spin_until(time.perf_counter_ns() + self.spin_ns)
        return self.items[index]


class ClockedLoader:
    """A loader whose fetches are clocked by the test's own hand, and whose start can be planted."""

    def __init__(self, loader: Any, plants: Plants) -> None:
        self.loader = loader
        self.plants = plants
        self.num_starts = 0

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        return _ClockedIterator(self)


class _ClockedIterator:
    def __init__(self, owner: ClockedLoader) -> None:
        self.plants = owner.plants
        with _Clocked(self.plants):
            self.plants.spin("worker_startup")
            self.batches: Any = iter(owner.loader)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __del__(self) -> None:
        # Lightning drops an iterator when it makes the next one; its workers are waited for here.
        with _Clocked(self.plants):
            self.batches = None

    def __next__(self) -> Any:
        self.plants.begin_fetch()
        with _Clocked(self.plants):
            return next(self.batches)


class _Clocked:
    def __init__(self, plants: Plants) -> None:
        self.plants = plants

    def __enter__(self) -> None:
        self.is_counted = self.plants.is_armed
        self.begin_ns = time.perf_counter_ns()

    def __exit__(self, *_: object) -> None:
        if self.is_counted:
            self.plants.fetch_ns += time.perf_counter_ns() - self.begin_ns
            self.plants.num_fetches += 1


class SpinInBackward(torch.autograd.Function):
    """The identity; its backward spins where the backward pass is planted."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, plants: Plants) -> torch.Tensor:  # type: ignore[override]
        """Return the value."""
        ctx.plants = plants
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[override]
        """Spin and pass the gradient on."""
        ctx.plants.spin("backward")
        return gradient, None


class PlantedSGD(torch.optim.SGD):
    """SGD whose step spins where the optimizer is planted."""

    def __init__(self, params: Iterable[torch.nn.Parameter], plants: Plants) -> None:
        super().__init__(params, lr=0.01)
        self.plants = plants

    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        """Spin and step."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.plants.spin("optimizer")
        super().step()
        return loss


class PlantedNet(torch.nn.Module):
    """Two small layers with a plant in forward and one in the backward pass between them."""

    def __init__(self, plants: Plants) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Linear(32, 64)
        self.second = torch.nn.Linear(64, 1)
        self.plants = plants

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return one number a row."""
        if self.training:
            self.plants.spin("forward")
        hidden = SpinInBackward.apply(torch.relu(self.first(value)), self.plants)
        return self.second(hidden)
