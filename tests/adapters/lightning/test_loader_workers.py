"""A Trainer's loader workers: found in every loop, and their CPU in the record."""

from __future__ import annotations

import time
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch.utils.data import DataLoader

from costlens.config import Config
from costlens.lightning import CostLensCallback
from costlens.observe.loader_workers import LoaderWorkers, WorkerWatch
from tests.adapters.lightning.jobs import Rows, make_module, make_trainer, record_of, rows


def _burn(_index: int) -> None:
    end_s = time.process_time() + 0.02
    while time.process_time() < end_s:
        pass


def _train(pl: ModuleType, *callbacks: object, **loaders: DataLoader) -> None:
    class Model(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
            return self.layer(batch).mean()

        def validation_step(self, batch: torch.Tensor, _: int) -> None:
            self.layer(batch)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    trainer = pl.Trainer(
        max_epochs=2,
        accelerator="cpu",
        callbacks=[*callbacks],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(Model(), **loaders)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many workers each iterator had that was told of."""
    seen: list[int] = []
    add = LoaderWorkers.add

    def note(self: LoaderWorkers, iterator: object) -> None:
        seen.append(len(getattr(iterator, "_workers", ())))
        add(self, iterator)

    monkeypatch.setattr(LoaderWorkers, "add", note)
    return seen


def test_workers_of_training_and_validation_are_told_once_an_epoch(
    each_pl: ModuleType, told: list[int]
) -> None:
    """Both loops' iterators, as soon as they have been made; those without workers do no harm."""
    train = DataLoader(Rows(4), batch_size=2, num_workers=2)
    validate = DataLoader(Rows(4), batch_size=2, num_workers=1)
    callback = CostLensCallback()
    _train(each_pl, callback, train_dataloaders=train, val_dataloaders=validate)
    assert told.count(2) >= 2
    assert told.count(1) >= 2
    del told[:]
    callback = CostLensCallback()
    plain = DataLoader(Rows(4), batch_size=2)
    _train(each_pl, callback, train_dataloaders=plain)
    assert {*told} <= {0}


def test_their_cpu_is_found_while_they_live(pl: ModuleType) -> None:
    """Two workers that stay: in the last epoch both are alive, with what they have burnt."""
    callback, seen = CostLensCallback(), []

    class Look(pl.Callback):
        def on_train_start(self, *_: object) -> None:
            self.watch = WorkerWatch(callback.run.parts.host.workers)

        def on_train_batch_end(self, *_: object) -> None:
            seen.append(self.watch.look(0))

    loader = DataLoader(Rows(20, _burn), batch_size=2, num_workers=2, persistent_workers=True)
    _train(pl, callback, Look(), train_dataloaders=loader)
    last = seen[-1]
    assert last is not None
    assert (last.num_alive, last.num_died) == (2, 0)
    assert last.cpu_s >= 0.5  # 2 epochs of 20 rows of 20 ms, less what was not yet told
    record = callback.run.finish()
    assert record is not None
    assert record.host is not None
    assert record.host.process is not None
    assert record.host.process.ended_children_s is not None
    assert record.host.process.ended_children_s >= 0.8  # Lightning has waited for them


def test_passes_saves_and_evaluations_are_counted(each_pl: ModuleType, tmp_path: Path) -> None:
    """Three epochs are three passes over the training loader, whose later first waits are told."""

    def sleep(_index: int) -> None:
        time.sleep(0.05)

    door = CostLensCallback(config=Config(summary=False, log_level="error"))
    saves = each_pl.callbacks.ModelCheckpoint(
        tmp_path / "saves", every_n_train_steps=2, save_top_k=-1
    )
    options = {"enable_checkpointing": True, "num_sanity_val_steps": 1}
    trainer = make_trainer(each_pl, door, saves, max_epochs=3, limit_val_batches=1, **options)
    trainer.fit(make_module(each_pl), rows(4, 2, read=sleep), rows(2))
    record = record_of(door)
    assert record.loading.num_passes == 3
    assert (record.loading.num_workers, record.loading.batch_size) == (0, 2)
    assert 0.2 <= record.loading.first_wait_s <= record.time_ns["data_wait"] / 1e9
    assert record.attempt.num_evaluations == 3
    assert record.attempt.num_saves == 3


def test_a_loader_is_known_beside_checkpoints(pl: ModuleType, tmp_path: Path) -> None:
    """There iterators are made late, and looking at one must not make it: that moves a resume."""
    url = str(tmp_path / "checkpoints")
    callback = CostLensCallback(checkpoint_url=url, config=Config(summary=False))
    rows = torch.randn(8, 4)
    _train(pl, callback, train_dataloaders=DataLoader(rows, batch_size=2, num_workers=0))
    loading = record_of(callback).loading
    assert loading is not None
    assert (loading.num_workers, loading.batch_size) == (0, 2)
