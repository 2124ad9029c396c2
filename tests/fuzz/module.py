"""The module of a random training: it does what its plan says, and counts for itself."""

from __future__ import annotations

from contextlib import suppress
from types import ModuleType
from typing import Any

import torch

from tests.fuzz.data import make_loaders
from tests.fuzz.doubles import make_optimizers, noting
from tests.fuzz.plan import MANUAL, Plan
from tests.fuzz.witness import Witness

__all__ = ["make_data_module", "make_module"]

_HOOKS = (
    "backward",
    "configure_gradient_clipping",
    "lr_scheduler_step",
    "on_after_backward",
    "on_after_batch_transfer",
    "on_before_backward",
    "on_before_batch_transfer",
    "on_before_optimizer_step",
    "on_before_zero_grad",
    "on_fit_end",
    "on_fit_start",
    "on_load_checkpoint",
    "on_predict_batch_end",
    "on_predict_batch_start",
    "on_predict_end",
    "on_predict_start",
    "on_save_checkpoint",
    "on_test_batch_end",
    "on_test_batch_start",
    "on_test_end",
    "on_test_epoch_end",
    "on_test_start",
    "on_train_batch_end",
    "on_train_end",
    "on_train_epoch_end",
    "on_train_epoch_start",
    "on_train_start",
    "on_validation_batch_end",
    "on_validation_batch_start",
    "on_validation_end",
    "on_validation_epoch_end",
    "on_validation_epoch_start",
    "on_validation_model_eval",
    "on_validation_model_zero_grad",
    "on_validation_start",
    "optimizer_step",
    "optimizer_zero_grad",
    "prepare_data",
    "setup",
    "teardown",
    "transfer_batch_to_device",
)
_DATA_HOOKS = (
    "on_after_batch_transfer",
    "on_before_batch_transfer",
    "on_exception",
    "prepare_data",
    "setup",
    "teardown",
    "transfer_batch_to_device",
)
_STAGES = {"train": "train", "val": "validation", "test": "test", "predict": "predict"}


class Steps:
    """What modules of both packages have in common: steps, losses and optimizers."""

    plan: Plan
    witness: Witness

    def build(self) -> None:
        """Make the layers; every optimizer has its own."""
        num = MANUAL.get(self.plan.optimization, 1)
        self.automatic_optimization = self.plan.optimization not in MANUAL
        self.layers = torch.nn.ModuleList(self._layer() for _ in range(num))
        self.num_steps = self.num_starts = 0

    def _layer(self) -> torch.nn.Module:
        middle = torch.nn.BatchNorm1d(6) if self.plan.has_batch_norm else torch.nn.Identity()
        return torch.nn.Sequential(
            torch.nn.Linear(4, 6), middle, torch.nn.Tanh(), torch.nn.Dropout(0.3),
            torch.nn.Linear(6, 1),
        )  # fmt: skip

    def loss(self, batch: Any, at: int = 0) -> torch.Tensor:
        """Return a loss of a batch."""
        weight = self.layers[at][0].weight
        rows = first_tensor(batch).to(weight.dtype)
        return self.layers[at](rows).square().mean()

    def say(self, name: str, value: torch.Tensor) -> None:
        """Log a value in every way Lightning knows."""
        if not self.plan.barebones:
            on_step = name == "train_loss"
            self.log(name, value, on_step=on_step, on_epoch=True, prog_bar=True, batch_size=2)

    # Training.

    def train_on(self, batch: Any) -> Any:
        """Make a training step and return what it gives."""
        self.witness.note("module.training_step", batch)
        plan, tally = self.plan, self.witness.tally
        self.num_steps += 1
        given = self._optimize(batch) if plan.optimization in MANUAL else self._learn(batch)
        tally.pending_steps += 1
        return given

    def _learn(self, batch: Any) -> Any:
        plan, tally = self.plan, self.witness.tally
        loss = self.loss(batch)
        if plan.infinite_at == self.num_steps - 1:
            loss = loss * float("inf")
        self.say("train_loss", loss)
        if not plan.barebones:  # known inside a batch only
            self.log("in_batch", loss, on_step=True, on_epoch=False, batch_size=2)
        if plan.output == "always none" or (
            plan.output == "sometimes none" and self.num_steps % 3 == 1
        ):
            return None
        tally.pending_losses.append(float(loss))
        return {"loss": loss, "extra": loss.detach() * 2} if plan.output == "dict" else loss

    def _optimize(self, batch: Any) -> Any:
        plan, tally = self.plan, self.witness.tally
        optimizers = self.optimizers()
        for at, optimizer in enumerate(
            optimizers if isinstance(optimizers, list) else [optimizers]
        ):
            loss = self.loss(batch, at)
            if plan.infinite_at == self.num_steps - 1:
                loss = loss * float("inf")
            self.manual_backward(loss)
            if plan.optimization == "manual recovering" and self.num_steps % 2:
                with suppress(ArithmeticError):
                    optimizer.step(closure=give_up)
            if plan.optimization != "manual odd" or self.num_steps % 2:
                optimizer.step()
                optimizer.zero_grad()
        self.say("train_loss", loss)
        if plan.output != "dict":
            return None
        tally.pending_losses.append(float(loss))
        return {"loss": loss, "extra": 1}

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
        """Skip the rest of the epoch where the plan says so."""
        self.witness.note("module.on_train_batch_start", batch, batch_idx)
        self.num_starts += 1
        return -1 if self.plan.skips_epoch_at == self.num_starts - 1 else None

    # Evaluation.

    def validate_on(self, batch: Any) -> torch.Tensor:
        """Make a validation step."""
        self.witness.note("module.validation_step", batch)
        loss = self.loss(batch)
        self.say("val_loss", loss)
        if not self.trainer.sanity_checking:
            self.witness.tally.validation_batches += 1
        return loss

    def test_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Make a test step."""
        self.witness.note("module.test_step", batch, batch_idx, dataloader_idx)
        self.say("test_loss", self.loss(batch))
        self.witness.tally.test_batches += 1

    def predict_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> torch.Tensor:
        """Return a prediction."""
        self.witness.note("module.predict_step", batch, batch_idx, dataloader_idx)
        return self.loss(batch)

    # Optimizers.

    def configure_optimizers(self) -> Any:
        """Return what the plan says."""
        self.witness.note("module.configure_optimizers")
        plan = self.plan
        if plan.optimization == "none":
            return None
        groups = [list(layer.parameters()) for layer in self.layers]
        optimizers = make_optimizers(self.witness, plan, groups)
        if plan.scheduler is None:
            return optimizers[0] if len(optimizers) == 1 else optimizers
        schedulers = [self._schedule(each) for each in optimizers]
        return optimizers, schedulers

    def _schedule(self, optimizer: Any) -> dict[str, Any]:
        kinds = torch.optim.lr_scheduler
        if self.plan.scheduler == "plateau":
            plateau = kinds.ReduceLROnPlateau(optimizer, patience=0)
            return {"scheduler": plateau, "monitor": "train_loss", "strict": False}
        scheduler = kinds.StepLR(optimizer, 1, gamma=0.7)
        return {"scheduler": scheduler, "interval": self.plan.scheduler}


def step_sometimes(self, epoch, batch_idx, optimizer, optimizer_closure=None) -> None:
    """Leave every second update out, as a user's ``optimizer_step`` may."""
    if self.num_steps % 2:
        optimizer_closure()
    else:
        optimizer.step(closure=optimizer_closure)


def give_up() -> None:
    """Fail inside an optimizer's step, as a line search may; the module goes on without it."""
    raise ArithmeticError


def first_tensor(batch: Any) -> torch.Tensor:
    """Return the first tensor of a batch."""
    if isinstance(batch, torch.Tensor):
        return batch
    members = batch.values() if isinstance(batch, dict) else batch
    return first_tensor(next(each for each in members if each is not None))


def make_module(pl: ModuleType, witness: Witness, plan: Plan, callbacks: list[Any]) -> Any:
    """Return the module of a plan.

    Args:
        pl: The Lightning package.
        witness: Gets notes of every hook.
        plan: What the module does.
        callbacks: What its ``configure_callbacks`` returns.
    """

    class Job(Steps, pl.LightningModule):
        def configure_callbacks(self):
            return callbacks

        def __deepcopy__(self, memo):
            made = make_module(pl, witness, plan, callbacks)
            made.load_state_dict(self.state_dict())
            return made

    for name, step in _steps(plan).items():
        setattr(Job, name, step)
    if plan.optimization == "left out":
        Job.optimizer_step = step_sometimes
    if plan.has_all_hooks:
        for name in _HOOKS:
            setattr(Job, name, noting(witness, "module", name, getattr(Job, name)))
    if plan.loaders_from == "module":
        _add_loaders(Job, pl, witness, plan)
    job = Job()
    job.plan, job.witness = plan, witness
    job.build()
    return job


def _steps(plan: Plan) -> dict[str, Any]:
    def training_step(self, batch, batch_idx):
        return self.train_on(batch)

    def iterating_step(self, dataloader_iter):
        batch, _, _ = next(dataloader_iter)
        return self.train_on(batch)

    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        return self.validate_on(batch)

    def iterating_validation(self, dataloader_iter):
        batch, _, _ = next(dataloader_iter)
        return self.validate_on(batch)

    taking = plan.takes_iterator
    return {
        "training_step": iterating_step if taking in ("train", "both") else training_step,
        "validation_step": iterating_validation
        if taking in ("validation", "both")
        else validation_step,
    }


def make_data_module(pl: ModuleType, witness: Witness, plan: Plan) -> Any:
    """Return a data module that notes its hooks and gives the loaders of a plan."""
    hooks = {
        name: noting(witness, "data", name, getattr(pl.LightningDataModule, name))
        for name in _DATA_HOOKS
    }
    kind = type("Data", (pl.LightningDataModule,), hooks)
    _add_loaders(kind, pl, witness, plan)
    return kind()


def _add_loaders(kind: Any, pl: ModuleType, witness: Witness, plan: Plan) -> None:
    def adder(name: str, stage: str) -> Any:
        def give(self: Any) -> Any:
            witness.note(f"data.{name}_dataloader")
            return make_loaders(pl, witness, plan, stage)

        return give

    for name, stage in _STAGES.items():
        if stage == "validation" and plan.val_loaders == "none":
            continue
        setattr(kind, f"{name}_dataloader", adder(name, stage))
