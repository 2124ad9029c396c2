"""The demo's training as a plain torch loop, watched by a run.

Every line that speaks to the run is one that a user would write; without those lines it is an
ordinary loop.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from itertools import chain, islice, repeat
from typing import Any, Protocol

import torch
from torch import Tensor

from costlens.cli.demo.recipe import (
    ACCUMULATION,
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

__all__ = ["KeptCheckpoints", "WatchedRun", "train"]


class WatchedIteration(Protocol):
    """What the loop asks of an iteration."""

    def log(self, **metrics: Tensor) -> None:
        """Take quality metrics of this iteration."""


class KeptCheckpoints(Protocol):
    """What the loop asks of its checkpoints."""

    def resume(self) -> int:
        """Go on from the newest one and return the optimizer steps done."""

    def step(self) -> None:
        """Note that an optimizer step is done."""


class WatchedRun(Protocol):
    """What the loop asks of a run; `costlens.Run` has it."""

    def watch(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> object:
        """Time forward, backward and optimizer by hooks, and count steps."""

    def batches(self, loader: Iterable[Batch]) -> Iterable[Batch]:
        """Return `loader` with its waits timed; iterable again and again."""

    def iteration(
        self, *, tokens: int | Tensor, slots: int, samples: int
    ) -> AbstractContextManager[WatchedIteration]:
        """Bracket one micro-batch."""

    def log(self, **metrics: float) -> None:
        """Take quality metrics."""

    def phase(self, name: str) -> AbstractContextManager[object]:
        """Bracket time that belongs to the phase `name`."""

    def checkpoints(self, **state: Any) -> KeptCheckpoints:
        """Return what saves and resumes this state."""


@single_thread()
def train(
    run: WatchedRun, seed: int = 0, *, max_steps: int = MAX_STEPS, keeps: bool = False
) -> Trained:
    """Return what comes of training a fresh model, watched by `run`.

    Repeatable: on one machine the same arguments give the same losses and weights bit for bit, and
    the same as `lightning_job.train`, however often it was killed and resumed in between.

    Args:
        run: A started run; the caller finishes it.
        seed: Decides initial weights and batch order.
        max_steps: Optimizer steps, >= 1, of two micro-batches each.
        keeps: Whether the run keeps checkpoints: it knows where.
    """
    model = build_model(seed)
    optimizer = build_optimizer(model)
    train_loader, validation_loader = build_loaders(seed, model.shape.block_size)
    run.watch(model, optimizer)
    trail = LossTrail()
    saved: KeptCheckpoints | None = None
    if keeps:
        saved = run.checkpoints(
            model=model, optimizer=optimizer, loader=train_loader, extra={"losses": trail}
        )
    begun = ACCUMULATION * (0 if saved is None else saved.resume())
    num_left = max(0, max_steps * ACCUMULATION - begun)
    validate_every = validation_interval_steps(max_steps) * ACCUMULATION
    endless = chain.from_iterable(repeat(run.batches(train_loader)))
    for number, batch in enumerate(islice(endless, num_left), start=begun + 1):
        mask = batch["attention_mask"]
        with run.iteration(tokens=mask.sum(), slots=mask.numel(), samples=len(mask)) as iteration:
            loss = batch_loss(model, batch)
            (loss / ACCUMULATION).backward()  # type: ignore[no-untyped-call]
            trail.add(loss)
            iteration.log(loss=loss)
            if number % ACCUMULATION == 0:
                torch.nn.utils.clip_grad_norm_(model.parameters(), GRADIENT_CLIP)
                optimizer.step()
                optimizer.zero_grad()
        if number % validate_every == 0:
            with run.phase("validation"):
                trail.validation = _validate(model, validation_loader)
            run.log(val_loss=trail.validation)
        if saved is not None and number % ACCUMULATION == 0:
            saved.step()
    return trail.summarise(model)


def _validate(model: torch.nn.Module, loader: Iterable[Batch]) -> float:
    model.eval()
    with torch.inference_mode():
        losses = [batch_loss(model, batch) for batch in loader]
    model.train()
    return torch.stack(losses).mean().item()
