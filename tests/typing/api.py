"""The API as a user types it; mypy reads this file, nothing runs it."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING

from typing_extensions import assert_type

import costlens
from costlens import Config, Run, start
from costlens.errors import ConfigError, CostlensError
from costlens.lightning import CostLensCallback
from costlens.testing import FakeClock, MemoryExporter

if TYPE_CHECKING:
    import torch


def train_in_a_plain_loop(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: torch.utils.data.DataLoader[torch.Tensor],
) -> None:
    """Train as the README shows it."""
    run = costlens.start("gpt-small", gpu_hour_price="2.50", window_s=5)
    assert_type(run, Run)
    run.watch(model, optimizer)
    for ids in run.batches(loader, device="cuda"):
        mask = ids > 0
        with run.iteration(tokens=mask.sum(), slots=ids.numel(), samples=len(ids)) as iteration:
            loss = model(ids)
            loss.backward()
            optimizer.step()
            iteration.log(loss=loss)
        with run.phase("checkpoint"):
            pass
    run.log(val_loss=0.5)
    record = run.finish()
    if record is not None:
        assert_type(record.progress.tokens, int | None)
        assert_type(record.time_ns["data_wait"], int)


def train_in_mixed_precision(
    run: Run, model: torch.nn.Module, optimizer: torch.optim.Optimizer, ids: torch.Tensor
) -> torch.Tensor:
    """Compute in what `COSTLENS_PRECISION` asks for."""
    with run.autocast():
        loss = model(ids)
    run.scaler.scale(loss).backward()
    run.scaler.step(optimizer)
    run.scaler.update()
    assert_type(run.scaler, torch.amp.GradScaler)
    with run.autocast():  # mypy must not take it for one that swallows exceptions
        return ids


def train_with_everything(
    model: torch.nn.Module,
    optimizers: list[torch.optim.Optimizer],
    loader: torch.utils.data.DataLoader[dict[str, torch.Tensor]],
    scaler: torch.amp.GradScaler,
) -> None:
    """Use what the short example leaves out."""
    with start(config=Config(name="a", summary=False)) as run:
        run.watch(model, *optimizers, loader=loader, scaler=scaler)
        for batch in run.batches(loader):
            with run.iteration(micro_batches=4, loss_tokens=batch["labels"].ne(-100).sum()):
                pass
        assert_type(run.id, str | None)
        assert_type(run.attempt, int | None)
        run.finish("stopped_early", exit_code=0)


def watched_batches_keep_their_type(run: Run) -> Iterator[tuple[int, str]]:
    """Watching a loader does not lose what it yields (a DataLoader's own batches are Any)."""
    for batch in run.batches([(1, "a"), (2, "b")]):
        assert_type(batch, tuple[int, str])
        yield batch


def count_the_reads_of_a_data_set(run: Run) -> None:
    """Ask for a file system that is counted, by URL or around one's own."""
    filesystem = run.filesystem("s3://bucket/data", anon=True)
    with run.filesystem(filesystem).open("bucket/data/a.bin") as file:
        file.read()


def train_with_lightning() -> None:
    """Make the callback in every documented way."""
    CostLensCallback()
    callback = CostLensCallback(
        "gpt-small",
        checkpoint_url="s3://bucket/run",
        tokens=lambda batch: batch["attention_mask"].sum(),
        gpu_hour_price=Decimal("2.50"),
        log_to_trainer=True,
        precision="auto",
        config=Config(currency="EUR"),
    )
    assert_type(callback.run, Run)


def test_with_doubles() -> None:
    """Write a test of one's own loop."""
    clock, exporter = FakeClock(), MemoryExporter()
    run = Run(Config(name="a"), clock=clock, exporters=[exporter])
    with run.open(), run.iteration():
        clock.advance(0.5)


def handle_errors() -> str:
    """Catch what a wrong setting raises."""
    try:
        Config(window_s=0)
    except ConfigError as error:
        assert_type(error, ConfigError)
        return str(error)
    except CostlensError as error:
        return type(error).__name__
    return ""


def mistakes_are_found() -> None:
    """What is wrong here must be an error of the type checker."""
    Config(windows_s=1)  # type: ignore[call-arg]
    CostLensCallback(budget=object())  # type: ignore[arg-type]
    CostLensCallback(gpu_hour_price=[])  # type: ignore[arg-type]
    start("a", framework=3)  # type: ignore[arg-type]


def name_the_version() -> None:
    """Ask for the version, as bug reports do."""
    assert_type(costlens.__version__, str)
