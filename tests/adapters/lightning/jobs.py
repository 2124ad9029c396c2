"""Small trainings whose every part a test can plant something into."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from costlens.core.records import RankRecord
from costlens.lightning import CostLensCallback
from costlens.testing import FakeClock

NS_PER_S = 1_000_000_000


class Plant:
    """Takes time of a run's fake clock when called.

    Args:
        clock: The run's clock.
        seconds: What every call takes.
    """

    def __init__(self, clock: FakeClock, seconds: float = 1.0) -> None:
        self.clock = clock
        self.seconds = seconds
        self.num_calls = 0

    def __call__(self, *_: Any) -> None:
        self.num_calls += 1
        self.clock.advance(self.seconds)


class Rows(Dataset):
    """Rows of four numbers; `read` is called for each."""

    def __init__(self, num: int, read: Callable[[int], None] | None = None) -> None:
        self.num = num
        self.read = read

    def __len__(self) -> int:
        return self.num

    def __getitem__(self, index: int) -> torch.Tensor:
        if index >= self.num:
            raise IndexError(index)
        if self.read is not None:
            self.read(index)
        return torch.full((4,), float(index % 7))


class Stream(IterableDataset):
    """The same without a length."""

    def __init__(self, num: int) -> None:
        self.num = num

    def __iter__(self):
        return iter(Rows(self.num))


def rows(num: int, size: int = 1, *, read: Any = None, **options: Any) -> DataLoader:
    """Return a loader of `num` rows in batches of `size`."""
    return DataLoader(Rows(num, read), batch_size=size, **options)


def _nothing(*_: Any) -> None:
    return None


def make_module(
    pl: ModuleType,
    *,
    step: Callable[[Any, int], Any] = _nothing,
    validation: Callable[[], None] = _nothing,
    num_manual: int = 0,
    **hooks: Callable[..., Any],
) -> Any:
    """Return a LightningModule of `pl`.

    Args:
        pl: The Lightning package.
        step: Called with the module's loss and the batch index; may return another loss.
        validation: Called in every validation and test step.
        num_manual: Optimizers of manual optimization; 0 is automatic.
        hooks: Further hooks, called as functions without `self`.
    """

    class Job(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = not num_manual
            self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 2) for _ in range(num_manual or 1))

        def loss(self, batch: Any) -> torch.Tensor:
            found = first_tensor(batch).float()
            return sum(layer(found[:, :4]).square().mean() for layer in self.layers)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = self.loss(batch)
            planted = step(loss, batch_idx)
            loss = loss if planted is None else planted
            return loss if self.automatic_optimization else self.optimize(batch)

        def optimize(self, batch: Any) -> None:
            optimizers = self.optimizers()
            for optimizer in optimizers if isinstance(optimizers, list) else [optimizers]:
                optimizer.zero_grad()
                self.manual_backward(self.loss(batch))
                optimizer.step()

        def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
            validation()
            self.log("val_loss", self.loss(batch))

        test_step = validation_step

        def predict_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            return self.layers[0](batch)

        def configure_optimizers(self) -> Any:
            made = [torch.optim.SGD(layer.parameters(), lr=0.01) for layer in self.layers]
            return made if num_manual else made[0]

    for name, hook in hooks.items():
        setattr(Job, name, lambda self, *args, hook=hook, **kwargs: hook(*args, **kwargs))
    return Job()


def first_tensor(batch: Any) -> torch.Tensor:
    """Return the first tensor of a batch."""
    if isinstance(batch, torch.Tensor):
        return batch
    members = batch.values() if isinstance(batch, dict) else batch
    return first_tensor(next(member for member in members if member is not None))


def make_trainer(pl: ModuleType, *callbacks: Any, **options: Any) -> Any:
    """Return a quiet Trainer on one CPU that neither saves nor checks its sanity."""
    quiet = {
        "accelerator": "cpu",
        "devices": 1,
        "enable_checkpointing": False,
        "enable_model_summary": False,
        "enable_progress_bar": False,
        "logger": False,
        "num_sanity_val_steps": 0,
    }
    return pl.Trainer(callbacks=list(callbacks), **{**quiet, **options})


def record_of(callback: CostLensCallback) -> RankRecord:
    """Return the record of the run that a callback fed, checked for exactness."""
    record = callback.run.finish()
    assert record is not None
    assert sum(record.time_ns.values()) == record.total_ns
    assert not record.telemetry.faults
    return record


def seconds(record: RankRecord) -> dict[str, float]:
    """Return the seconds of every phase that took time, without start-up."""
    return {
        phase: time_ns / NS_PER_S
        for phase, time_ns in record.time_ns.items()
        if time_ns and phase != "startup"
    }


def fit(
    pl: ModuleType,
    module: Any,
    loader: Any,
    *more: Any,
    others: Sequence[Any] = (),
    name: str = "test",
    **options: Any,
) -> RankRecord:
    """Return the record of one watched fit."""
    callback = CostLensCallback(name, **options.pop("watch", {}))
    make_trainer(pl, callback, *others, **options).fit(module, loader, *more)
    return record_of(callback)
