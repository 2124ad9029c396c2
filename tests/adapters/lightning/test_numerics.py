"""Watching changes no number of the training."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from costlens.lightning import CostLensCallback
from tests.adapters.lightning.jobs import make_trainer

NUM_STEPS = 50


def _train(pl, num_workers: int, *callbacks, **options) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Return the losses and the weights after 50 steps with dropout."""
    losses: list[torch.Tensor] = []

    class Net(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Sequential(
                torch.nn.Linear(8, 16),
                torch.nn.ReLU(),
                torch.nn.Dropout(0.5),
                torch.nn.Linear(16, 1),
            )

        def training_step(self, batch, batch_idx):
            (row,) = batch
            loss = self.net(row).square().mean()
            losses.append(loss.detach().clone())
            self.log("train_loss", loss)
            return loss

        def validation_step(self, batch, batch_idx) -> None:
            (row,) = batch
            self.log("val_loss", self.net(row).square().mean())

        def configure_optimizers(self):
            optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 2)]

    pl.seed_everything(7, workers=True, verbose=False)
    data = TensorDataset(torch.randn(80, 8))
    loader = DataLoader(data, batch_size=4, shuffle=True, num_workers=num_workers)
    module = Net()
    trainer = make_trainer(pl, *callbacks, max_steps=NUM_STEPS, **options)
    trainer.fit(module, loader, DataLoader(data, batch_size=40))
    return torch.stack(losses), [each.detach().clone() for each in module.parameters()]


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("profiler", [None, "simple"])
def test_losses_and_weights_are_the_same_bit_for_bit(pl, num_workers, profiler) -> None:
    """50 steps with dropout, shuffling and validation are equal with costlens and without."""
    callback = CostLensCallback("bits", tokens=lambda batch: batch[0].numel())
    plain_losses, plain_weights = _train(pl, num_workers, profiler=profiler)
    losses, weights = _train(pl, num_workers, callback, profiler=profiler)
    assert len(losses) == NUM_STEPS
    assert torch.equal(losses, plain_losses)
    assert all(torch.equal(one, other) for one, other in zip(weights, plain_weights, strict=True))
