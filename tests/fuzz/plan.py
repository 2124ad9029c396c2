"""Plans: what one random training looks like.

A plan is a frozen set of small choices, the simplest first, so a failing one is told by the few
fields that differ from the defaults.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

__all__ = ["MANUAL", "Plan"]

MANUAL = {"manual": 1, "manual 2": 2, "manual 3": 3, "manual odd": 1, "manual recovering": 1}
"""Kinds of manual optimization and their number of optimizers."""

_EVENTS = (
    "first.setup",
    "first.on_fit_start",
    "first.on_sanity_check_end",
    "first.on_train_start",
    "first.on_train_epoch_start",
    "first.on_train_batch_start",
    "first.on_train_batch_end",
    "first.on_before_optimizer_step",
    "first.on_before_zero_grad",
    "first.on_after_backward",
    "first.on_validation_start",
    "first.on_validation_batch_end",
    "first.on_validation_end",
    "first.on_test_batch_end",
    "first.on_save_checkpoint",
    "first.on_train_epoch_end",
    "first.on_train_end",
    "first.on_fit_end",
    "first.teardown",
    "last.setup",
    "last.on_train_start",
    "last.on_train_epoch_start",
    "last.on_train_batch_start",
    "last.on_train_batch_end",
    "last.on_before_backward",
    "last.on_validation_epoch_start",
    "last.on_validation_epoch_end",
    "last.on_predict_batch_start",
    "last.on_test_end",
    "last.on_train_epoch_end",
    "last.on_train_end",
    "module.training_step",
    "module.validation_step",
    "module.configure_optimizers",
    "module.optimizer_step",
    "module.on_train_batch_start",
    "module.on_train_batch_end",
    "module.on_after_backward",
    "module.on_validation_model_eval",
    "module.transfer_batch_to_device",
    "module.lr_scheduler_step",
    "data.read",
    "data.train_dataloader",
    "logger.log_metrics",
    "logger.save",
    "profiler.start",
    "optimizer.step",
)
# What stops a training or saves a checkpoint does so where the Trainer expects it.
_STOPS = (
    "first.on_train_batch_start",
    "first.on_train_batch_end",
    "last.on_train_batch_end",
    "last.on_train_epoch_start",
    "last.on_train_epoch_end",
    "first.on_validation_end",
    "module.training_step",
    "module.on_train_start",
)
_SAVES = (
    "first.on_train_batch_end",
    "last.on_train_batch_end",
    "last.on_train_epoch_end",
    "first.on_train_epoch_start",
    "first.on_validation_end",
    "last.on_validation_batch_end",
    "last.on_train_end",
)
_ERRORS = ("RuntimeError", "KeyboardInterrupt", "StopIteration", "SystemExit", "BaseException")


def _of(*choices: Any, odds: float = 0.25) -> Any:
    """Return a field with its choices, the default first, and the odds of another one."""
    return field(default=choices[0], metadata={"choices": choices, "odds": odds})


def _at(events: tuple[str, ...], odds: float) -> Any:
    """Return a field that is None or ``(event, which time it happens)``."""
    # Most hooks come once or twice; a trap for a later time would often not be sprung.
    times = [(event, nth) for nth in (1, 1, 1, 2, 2, 3, 5) for event in events]
    return _of(None, *times, odds=odds)


@dataclass(frozen=True)
class Plan:
    """One training; see :func:`tests.fuzz.job.run_plan` for what each choice does."""

    seed: int = _of(*range(8), odds=1)
    package: str = _of("pytorch_lightning", "lightning.pytorch", odds=0.15)
    calls: tuple[str, ...] = _of(
        ("fit",),
        ("fit", "fit"),
        ("fit", "more"),
        ("fit", "more", "more"),
        ("fit", "resume"),
        ("fit", "renew"),
        ("fit", "renew", "more"),
        ("fit", "test"),
        ("fit", "test", "more"),
        ("fit", "retest"),
        ("fit", "validate", "test", "predict"),
        ("validate", "fit"),
        ("validate", "fit", "test"),
        ("validate",),
        ("test",),
        ("predict",),
        odds=0.5,
    )
    # Where our callback stands: so many callbacks before it, or given by the module.
    place: int = _of(0, 1, 2, 9, -1)
    has_twin: bool = _of(False, True, odds=0.07)
    counts: str = _of("batch", "number", "mapping")
    is_real_time: bool = _of(False, True)
    window_s: float = _of(10.0, 0.01)

    # Limits of the loop.
    max_epochs: int | None = _of(2, 1, 3, None, -1, odds=0.5)
    min_epochs: int | None = _of(None, 1, 2, 3, odds=0.1)
    max_steps: int = _of(-1, 0, 1, 3, 5, 8)
    min_steps: int | None = _of(None, 2, 4, odds=0.1)
    is_out_of_time: bool = _of(False, True, odds=0.05)
    limit_train_batches: int | float = _of(1.0, 0, 1, 2, 3, 0.5)
    limit_val_batches: int | float = _of(1.0, 0, 1, 2, 0.5)
    limit_test_batches: int | float = _of(1.0, 0, 1)
    val_check_interval: int | float | str = _of(1.0, 0.5, 0.34, 1, 2, 3, "00:00:00:00", odds=0.4)
    check_val_every_n_epoch: int | None = _of(1, 2, None)
    num_sanity_val_steps: int = _of(0, 1, 2, -1, odds=0.4)
    reload_dataloaders_every_n_epochs: int = _of(0, 1, 2, odds=0.15)
    fast_dev_run: bool | int = _of(False, True, 1, 3, odds=0.07)
    overfit_batches: int | float = _of(0, 1, 2, 0.5, odds=0.07)
    barebones: bool = _of(False, True, odds=0.07)
    detect_anomaly: bool = _of(False, True, odds=0.07)
    log_every_n_steps: int = _of(50, 1, 2)

    # Data.
    num_rows: int = _of(9, 1, 2, 4, 14, 0, odds=0.4)
    batch: str = _of("tensor", "pair", "text", "text without mask", "sometimes none", odds=0.5)
    train_loader: str = _of(
        "map", "unsized", "sized stream", "batches", "dict", "list", "nested", "min_size",
        "max_size", "max_size_cycle", "sequential", "none member", odds=0.5,
    )  # fmt: skip
    val_loaders: str = _of(
        "one", "none", "two", "three", "unsized", "min_size", "max_size", "empty", odds=0.4
    )
    loaders_from: str = _of("arguments", "datamodule", "module", odds=0.4)
    is_shuffled: bool = _of(False, True)
    num_workers: int = _of(0, 2, odds=0.03)
    is_persistent: bool = _of(False, True)
    takes_iterator: str = _of("", "train", "validation", "both", odds=0.1)

    # The module.
    precision: str = _of("32-true", "bf16-mixed", "64-true", "bf16-true", "scaler", odds=0.3)
    optimization: str = _of(
        "sgd", "adam", "fused", "subclass", "lbfgs", "none", "left out", *MANUAL, odds=0.5
    )
    accumulate: int = _of(1, 2, 3, 4, odds=0.3)
    scheduler: str | None = _of(None, "epoch", "step", "plateau", odds=0.3)
    clip: tuple[float, str] | None = _of(None, (0.1, "norm"), (0.1, "value"))
    output: str = _of("tensor", "dict", "sometimes none", "always none", odds=0.3)
    infinite_at: int | None = _of(None, 0, 2, 3, odds=0.15)
    skips_epoch_at: int | None = _of(None, 0, 1, 3, odds=0.1)
    has_all_hooks: bool = _of(False, True, odds=0.5)
    has_batch_norm: bool = _of(False, True, odds=0.1)

    # What else stands around the training.
    logger: str = _of("none", "csv", "own", "two", odds=0.5)
    profiler: str | None = _of(None, "simple", "advanced", "own", "own profile", odds=0.4)
    checkpointing: bool = _of(False, True)
    early_stopping: str | None = _of(None, "val_loss", "train_loss", odds=0.15)
    lr_monitor: bool = _of(False, True, odds=0.1)
    scheduled_accumulation: bool = _of(False, True, odds=0.1)
    averages_weights: bool = _of(False, True, odds=0.07)
    has_bar_and_summary: bool = _of(False, True, odds=0.05)
    copies: tuple[str, int] | None = _at(("last.on_train_batch_end", "first.on_fit_start"), 0.05)
    stops: tuple[str, int] | None = _at(_STOPS, 0.15)
    saves: tuple[str, int] | None = _at(_SAVES, 0.2)
    fails: tuple[str, int] | None = _at(_EVENTS, 0.3)
    fails_again: tuple[str, int] | None = _of(
        None, ("last.on_exception", 1), ("first.on_exception", 1), odds=0.07
    )
    error: str = _of(*_ERRORS, odds=0.5)

    def describe(self) -> str:
        """Return the plan as code: only what is not the default."""
        told = [f"{name}={value!r}" for name, value in self.differences()]
        return f"Plan({', '.join(told)})"

    def differences(self) -> Iterator[tuple[str, Any]]:
        """Yield names and values of the fields that are not the default."""
        for each in dataclasses.fields(self):
            value = getattr(self, each.name)
            # 1 and 1.0 are different limits.
            if (type(value), value) != (type(each.default), each.default):
                yield each.name, value
