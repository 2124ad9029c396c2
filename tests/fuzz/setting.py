"""What a user makes before a random training: module, data, callbacks and the Trainer."""

from __future__ import annotations

import importlib
import logging
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from costlens.config import Config
from costlens.lightning import CostLensCallback
from tests.fuzz.data import make_loaders
from tests.fuzz.doubles import make_loggers, make_profiler, make_recorder, make_scaler
from tests.fuzz.module import make_data_module, make_module
from tests.fuzz.plan import Plan
from tests.fuzz.tally import make_beside
from tests.fuzz.witness import Witness

__all__ = ["Setting"]

_OPTIONS = (
    "barebones",
    "check_val_every_n_epoch",
    "detect_anomaly",
    "fast_dev_run",
    "limit_test_batches",
    "limit_train_batches",
    "limit_val_batches",
    "max_epochs",
    "max_steps",
    "min_epochs",
    "min_steps",
    "num_sanity_val_steps",
    "overfit_batches",
    "reload_dataloaders_every_n_epochs",
    "val_check_interval",
)
_COUNTS = {
    "batch": None,
    "number": lambda batch: 3,
    "mapping": lambda batch: {"tokens": torch.tensor(2), "samples": 5},
}


class Setting:
    """Everything around a training, as a plan says.

    Args:
        plan: What to make.
        witness: Gets the notes of everything.
        folder: A folder for everything that is written.
        is_watched: Whether costlens watches.

    Attributes:
        ours: The callbacks of costlens; all of them see the same.
    """

    def __init__(self, plan: Plan, witness: Witness, folder: Path, *, is_watched: bool) -> None:
        self.plan = plan
        self.witness = witness
        self.folder = folder
        self.pl: ModuleType = importlib.import_module(plan.package)
        logging.getLogger(plan.package).setLevel(logging.ERROR)
        names = ["fuzz", "twin"] if plan.has_twin else ["fuzz"]
        self.ours = [self._watch(name) for name in names] if is_watched else []
        watching = [make_beside(self.pl, witness.tally, plan), *self.ours]
        given = watching if plan.place == -1 else []
        self.module = make_module(self.pl, witness, plan, given)
        self.profiler = make_profiler(self.pl, witness, plan)
        self.callbacks = self._surround([] if plan.place == -1 else watching)
        self._data = None
        if plan.loaders_from == "datamodule":
            self._data = make_data_module(self.pl, witness, plan)

    def _watch(self, name: str) -> CostLensCallback:
        config = Config(
            dir=str(self.folder / "runs"),
            summary=False,
            log_level="error",
            window_s=self.plan.window_s,
        )
        return CostLensCallback(name, tokens=_COUNTS[self.plan.counts], config=config)

    def _surround(self, watching: list[Any]) -> list[Any]:
        first, last = (make_recorder(self.pl, self.witness, each) for each in ("first", "last"))
        made = [first, *self._extra(), last]
        at = min(max(self.plan.place, 0), len(made))
        made[at:at] = watching
        return made

    def _extra(self) -> list[Any]:
        plan, kinds = self.plan, self.pl.callbacks
        made = []
        if plan.checkpointing:
            made.append(kinds.ModelCheckpoint(dirpath=self.folder / "none", save_top_k=0))
        if plan.early_stopping:
            made.append(kinds.EarlyStopping(plan.early_stopping, patience=0, strict=False))
        if plan.lr_monitor:
            made.append(kinds.LearningRateMonitor("step"))
        if plan.scheduled_accumulation:
            made.append(kinds.GradientAccumulationScheduler({0: 2, 1: 3}))
        if plan.averages_weights:
            made.append(kinds.StochasticWeightAveraging(0.01, swa_epoch_start=1))
        return made

    def make_trainer(self) -> Any:
        """Return a Trainer; each call makes one with the same callbacks."""
        plan = self.plan
        options = {name: getattr(plan, name) for name in _OPTIONS}
        if plan.precision == "scaler":
            mixed = importlib.import_module(f"{plan.package}.plugins").MixedPrecision
            options["plugins"] = [mixed("16-mixed", "cpu", make_scaler(self.witness))]
        else:
            options["precision"] = plan.precision
        if plan.clip is not None:
            options.update(gradient_clip_val=plan.clip[0], gradient_clip_algorithm=plan.clip[1])
        return self.pl.Trainer(
            accelerator="cpu",
            devices=1,
            callbacks=list(self.callbacks),
            accumulate_grad_batches=plan.accumulate,
            max_time={"seconds": 0} if plan.is_out_of_time else None,
            log_every_n_steps=None if plan.barebones else plan.log_every_n_steps,
            enable_checkpointing=plan.checkpointing,
            enable_progress_bar=plan.has_bar_and_summary,
            enable_model_summary=plan.has_bar_and_summary,
            logger=make_loggers(self.pl, self.witness, plan, self.folder),
            profiler=self.profiler,
            default_root_dir=str(self.folder),
            **options,
        )

    def give_data(self, call: str, *, is_fit: bool) -> dict[str, Any]:
        """Return the arguments with which data is given to a call of the Trainer."""

        def make(stage: str) -> Any:
            return make_loaders(self.pl, self.witness, self.plan, stage)

        if self._data is not None:
            return {"datamodule": self._data}
        if self.plan.loaders_from == "module":
            return {}
        if is_fit:
            return {"train_dataloaders": make("train"), "val_dataloaders": make("val")}
        return {"dataloaders": make(call)}
