"""What a record must say, counted by the training itself: its data, module and optimizers.

A batch counts when it ends; the callback that counts it stands right before ours, so that no other
callback can fail between the two.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from tests.fuzz.plan import Plan

__all__ = ["Tally", "make_beside"]

_STAGES = {"fit": "train", "validate": "validation", "test": "test", "predict": "prediction"}


@dataclass
class Tally:
    """Counts, and how the newest call of a Trainer went."""

    iterations: int = 0
    micro_batches: int = 0
    optimizer_steps: int = 0
    skipped_steps: int = 0
    samples: int = 0
    slots: int = 0
    tokens: int = 0
    loss_tokens: int = 0
    validation_batches: int = 0
    test_batches: int = 0
    losses: list[float] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    # How the run stands: fits that completed a batch, the outcome and what was raised.
    num_fits: int = 0
    outcome: str = "running"
    fit_outcome: str = "completed"
    error: str | None = None
    stage: str | None = None
    end_step: int | None = None
    # The newest call: whether our callback was set up in it, still is, and saw training begin.
    is_seen: bool = False
    is_open: bool = False
    has_trained: bool = False
    # What is under way.
    pending_steps: int = 0
    pending_losses: list[float] = field(default_factory=list)
    batches_in_fit: int = 0
    is_past_epoch: bool = False  # whether an epoch of the fit that had a batch is over
    epoch: int = -1
    is_epoch_complete: bool = False

    def freeze(self) -> Tally:
        """Return the counts as they are now."""
        return copy.deepcopy(self)

    def add(self, name: str, count: int) -> None:
        """Add to a count that is absent until somebody reports it."""
        if name not in self.known:
            self.known.append(name)
        setattr(self, name, getattr(self, name) + count)

    def begin_call(self, stage: str) -> None:
        """Begin what a Trainer was called for."""
        self.is_open, self.is_seen, self.has_trained = True, True, False
        self.outcome, self.error, self.stage = "running", None, _STAGES[stage]
        self.batches_in_fit, self.is_past_epoch = 0, False
        self.epoch, self.is_epoch_complete = -1, False
        self.begin_batch()

    def begin_epoch(self, epoch: int) -> None:
        """Begin an epoch of training."""
        self.epoch, self.is_epoch_complete = epoch, False

    def begin_batch(self) -> None:
        """Forget what an abandoned batch did: it belongs to no iteration."""
        self.pending_steps = 0
        self.pending_losses.clear()

    def end_batch(self, outputs: Any, *, is_last: bool) -> None:
        """Count a batch."""
        self.iterations += 1
        self.micro_batches += self.pending_steps
        self.num_fits += self.batches_in_fit == 0
        self.batches_in_fit += 1
        self.is_epoch_complete = is_last
        if outputs is not None and "loss" in outputs:
            self.losses.append(self.pending_losses[-1])
        self.begin_batch()

    def count_rows(self, plan: Plan, batch: Any) -> None:
        """Count what a batch holds: of several loaders the first that gave something."""
        counts = {"number": {"tokens": 3}, "mapping": {"tokens": 2, "samples": 5}}
        given = counts.get(plan.counts, {})
        if isinstance(batch, dict) and "input_ids" in batch:
            ids, mask, labels = (batch.get(n) for n in ("input_ids", "attention_mask", "labels"))
            self.add("slots", ids.numel())
            self.add("loss_tokens", sum(each != -100 for each in labels.flatten().tolist()))
            if mask is not None and "tokens" not in given:
                self.add("tokens", sum(mask.flatten().tolist()))
        rows = _first_member(batch)
        if rows is not None and "samples" not in given:
            self.add("samples", len(rows))
        for name, count in given.items():
            self.add(name, count)

    def end_call(self, trainer: Any) -> None:
        """End a call whose Trainer tears us down."""
        if not self.is_open:
            return
        self._close(trainer)
        if self.stage == "train":
            is_early = trainer.should_stop and not self._is_at_limit(trainer)
            self.fit_outcome = "stopped_early" if is_early else "completed"
        self.outcome = self.fit_outcome

    def fail(self, trainer: Any, error: BaseException) -> None:
        """End a call with what was raised; what fails behind our teardown fails it as well."""
        if self.is_open:
            self._close(trainer)
        if self.is_seen:
            self.error = type(error).__name__
            self.outcome = "failed"
            if isinstance(error, KeyboardInterrupt):
                self.outcome = "interrupted"
            elif isinstance(error, SystemExit) and error.code in (None, 0):
                self.outcome = "completed"

    def _close(self, trainer: Any) -> None:
        self.is_open = False
        if self.has_trained:
            self.end_step = trainer.global_step

    def _is_at_limit(self, trainer: Any) -> bool:
        """Return whether a fit made all the steps or epochs that were asked for."""
        if 0 <= trainer.max_steps <= trainer.global_step:
            return True
        if trainer.max_epochs is None or trainer.max_epochs < 0 or self.epoch < 0:
            return False
        return self.epoch + 1 >= trainer.max_epochs and self.is_epoch_complete


def _first_member(batch: Any) -> Any:
    while isinstance(batch, (list, tuple, dict)):
        members = batch.values() if isinstance(batch, dict) else batch
        batch = next((each for each in map(_first_member, members) if each is not None), None)
    return batch


def make_beside(pl: ModuleType, tally: Tally, plan: Plan) -> Any:
    """Return the callback that counts every batch that gets as far as ours."""

    def end_batch(self, trainer, module, outputs, batch, batch_idx) -> None:
        is_last = trainer.fit_loop.epoch_loop._num_ready_batches_reached()
        tally.end_batch(outputs, is_last=is_last)
        tally.count_rows(plan, batch)

    def end_epoch(self, *_: Any) -> None:
        tally.is_past_epoch = tally.batches_in_fit > 0

    def start(self, *_: Any) -> None:
        tally.has_trained = True
        tally.add("optimizer_steps", 0)  # from here on none is 0, not unknown
        tally.add("skipped_steps", 0)

    hooks: dict[str, Callable[..., Any]] = {
        "setup": lambda self, trainer, module, stage: tally.begin_call(
            getattr(stage, "value", stage)
        ),
        "on_train_start": start,
        "on_train_epoch_start": lambda self, trainer, _: tally.begin_epoch(trainer.current_epoch),
        "on_train_batch_start": lambda self, *_: tally.begin_batch(),
        "on_train_batch_end": end_batch,
        "on_train_epoch_end": end_epoch,
        "teardown": lambda self, trainer, module, stage: tally.end_call(trainer),
        "on_exception": lambda self, trainer, module, error: tally.fail(trainer, error),
        "__deepcopy__": lambda self, memo: pl.Callback(),
    }
    return type("Beside", (pl.Callback,), hooks)()
