"""The demo's training as a Lightning job, watched by callbacks.

Nothing here knows of costlens: what watches the training is handed in as a callback, as a user
would add it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from costlens.cli.demo.recipe import (
    ACCUMULATION,
    BATCH_SIZE,
    GRADIENT_CLIP,
    MAX_STEPS,
    Batch,
    LossTrail,
    Trained,
    batch_loss,
    build_loaders,
    build_model,
    build_optimizer,
    single_thread,
    validation_interval_steps,
)

__all__ = ["ByteLanguageModel", "train"]


class ByteLanguageModel(pl.LightningModule):
    """The demo's model with its loss and optimizer."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.model = build_model(seed)
        self.trail = LossTrail()

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Return the loss of a micro-batch, in nats a byte."""
        loss = batch_loss(self.model, batch)
        self.trail.add(loss)
        self.log("loss", loss, prog_bar=True, batch_size=BATCH_SIZE)
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Log the loss of a validation batch as `val_loss`."""
        loss = batch_loss(self.model, batch)
        self.log("val_loss", loss, prog_bar=True, batch_size=BATCH_SIZE)

    def on_validation_end(self) -> None:
        """Keep the mean of a validation."""
        self.trail.validation = self.trainer.callback_metrics["val_loss"].item()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Let the losses go with the weights."""
        checkpoint["losses"] = self.trail.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Go on from them."""
        self.trail.load_state_dict(checkpoint["losses"])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer over all parameters."""
        return build_optimizer(self.model)


@single_thread()
def train(
    callbacks: Sequence[pl.Callback] = (),
    seed: int = 0,
    *,
    max_steps: int = MAX_STEPS,
    show_progress: bool = True,
) -> Trained:
    """Return what comes of training a fresh model on the CPU, watched by `callbacks`.

    Repeatable: on one machine the same arguments give the same losses and weights bit for bit, and
    the same as `plain_job.train`, however often it was killed and resumed in between.

    Args:
        callbacks: Added to the trainer in this order.
        seed: Decides initial weights and batch order.
        max_steps: Optimizer steps, >= 1, of two micro-batches each.
        show_progress: Whether the bar is drawn (on standard output, as Lightning does).
    """
    module = ByteLanguageModel(seed)
    train_loader, validation_loader = build_loaders(seed, module.model.shape.block_size)
    num_batches = max_steps * ACCUMULATION
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=1,
        accumulate_grad_batches=ACCUMULATION,
        callbacks=list(callbacks),
        check_val_every_n_epoch=None,  # counts on over epochs
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=show_progress,
        gradient_clip_val=GRADIENT_CLIP,
        limit_train_batches=num_batches,  # so that the bar ends where the training does
        logger=False,
        max_epochs=math.ceil(num_batches / len(train_loader)),
        max_steps=max_steps,
        num_sanity_val_steps=0,
        val_check_interval=validation_interval_steps(max_steps) * ACCUMULATION,
    )
    with warnings.catch_warnings():
        # Advice to start loader workers: two cores have none to spare.
        warnings.filterwarnings("ignore", message=".*does not have many workers")
        # Lightning 2.6 calls what torch 2.13 deprecates.
        warnings.filterwarnings("ignore", message=".*isinstance.treespec, LeafSpec")
        trainer.fit(module, train_loader, validation_loader)
    return module.trail.summarise(module.model)
