"""What a Trainer tells about itself: its version, its place in the job, how long it will train.

Read in ``setup`` and at the end, never inside the loop; ``lightning.py`` puts the answers into the
run.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from costlens.observe.device import Device
from costlens.observe.placement import detect_placement
from costlens.observe.placement.job import identify
from costlens.observe.placement.place import Placement
from costlens.observe.trainer.given import Optimizer, Trainer

__all__ = [
    "describe_debug",
    "describe_framework",
    "device_kind",
    "device_ordinals",
    "find_scaler",
    "is_overridden",
    "is_tuning",
    "iterate_evaluations",
    "iterate_exchanges",
    "iterate_iterators",
    "iterate_training_iterators",
    "look_at_metrics",
    "open_device",
    "place_trainer",
    "real_optimizers",
    "stage_name",
    "total_steps",
]

_PACKAGES = ("lightning", "pytorch_lightning")
_STAGES = {"fit": "train", "validate": "validation", "test": "test", "predict": "prediction"}


def describe_framework(trainer: Trainer) -> str:
    """Return the framework and its version, such as ``lightning 2.6.6``."""
    for base in type(trainer).__mro__:
        package = base.__module__.partition(".")[0]
        if package in _PACKAGES:
            return f"lightning {getattr(sys.modules.get(package), '__version__', '')}".strip()
    return "lightning"


def describe_debug(trainer: Trainer) -> str | None:
    """Return why this is a debug run, such as ``fast_dev_run=1``, or None."""
    for name in ("fast_dev_run", "overfit_batches"):
        value = getattr(trainer, name, None)
        if value:
            return f"{name}={value}"
    return None


def device_kind(trainer: Trainer) -> str:
    """Return the kind of device this rank drives, such as ``cpu`` or ``cuda``."""
    return str(trainer.strategy.root_device.type)


def device_ordinals(trainer: Trainer) -> tuple[int, ...] | None:
    """Return torch's numbers of the GPUs that this rank drives, or None without one."""
    device = trainer.strategy.root_device
    return None if device.type != "cuda" or device.index is None else (int(device.index),)


def open_device(trainer: Trainer) -> Device | None:
    """Return the stream that this rank's GPU trains on, or None without one.

    Only once training starts: Lightning has initialised the device by then.
    """
    if device_kind(trainer) != "cuda":
        return None
    import torch

    from costlens.observe.device_cuda import CudaDevice

    return CudaDevice(torch.cuda.current_stream(trainer.strategy.root_device))


def place_trainer(trainer: Trainer) -> Placement:
    """Return where this process stands in its job, as the launcher and the Trainer tell it."""
    placement = detect_placement()
    world_size = int(trainer.world_size)
    launch_key, job_id = placement.launch_key, identify(placement.job, world_size)
    if world_size == 1 < placement.world_size:
        # Each task of the launch trains alone: a run of its own, the same after a restart.
        launch_key = None
        job_id = None if job_id is None else f"{job_id}-{placement.rank}"
    if launch_key is None and world_size > 1:
        # A cluster that no detector knows: the address is all that its ranks share for certain.
        cluster = trainer.strategy.cluster_environment
        launch_key = f"{cluster.main_address}/{cluster.main_port}"
    return dataclasses.replace(
        placement,
        launcher="lightning" if placement.launcher == "none" else placement.launcher,
        launch_key=launch_key,
        rank=int(trainer.global_rank),
        local_rank=int(trainer.local_rank),
        node_rank=int(trainer.node_rank),
        world_size=world_size,
        local_world_size=max(1, world_size // max(1, int(trainer.num_nodes))),
        job_id=job_id,
    )


def total_steps(trainer: Trainer) -> int | None:
    """Return the optimizer steps that this training will have made at its end.

    They are on the scale of ``trainer.global_step``; None where unknown or without end. Known
    after the loaders are set up. How many steps an epoch makes is unknown with manual
    optimization, a schedule of accumulation and loaders without length.
    """
    limits = []
    if trainer.max_steps is not None and trainer.max_steps >= 0:
        limits.append(int(trainer.max_steps))
    if trainer.max_epochs is not None and trainer.max_epochs >= 0:
        steps_in_epochs = _steps_in_epochs(trainer)
        if steps_in_epochs is None:
            return None  # the epochs may be over before the steps are
        limits.append(steps_in_epochs)
    return min(limits, default=None)


def _steps_in_epochs(trainer: Trainer) -> int | None:
    epochs, num_batches = int(trainer.max_epochs), float(trainer.num_training_batches)
    is_regular = trainer.lightning_module.automatic_optimization and not any(
        hasattr(callback, "scheduling") for callback in trainer.callbacks
    )
    if epochs == 0:
        return 0
    if not is_regular or not math.isfinite(num_batches):
        return None
    return epochs * math.ceil(num_batches / int(trainer.accumulate_grad_batches))


def look_at_metrics(trainer: Trainer) -> Mapping[str, Any]:
    """Return what the training has logged, the batch under way included.

    ``trainer.callback_metrics`` says the same, but being asked it keeps the values of the batch:
    they would still be there if the training fails in it.
    """
    connector = trainer._logger_connector  # noqa: SLF001 - no public property only looks
    return {**connector._callback_metrics, **connector.metrics["callback"]}  # noqa: SLF001 - same


def real_optimizers(trainer: Trainer) -> list[Optimizer]:
    """Return the optimizers, without Lightning's stand-in for a module that has none."""
    return [each for each in trainer.optimizers if type(each).__name__ != "_MockOptimizer"]


def find_scaler(trainer: Trainer) -> object:
    """Return the gradient scaler that may skip optimizer steps, or None."""
    scaler: object = getattr(trainer.precision_plugin, "scaler", None)
    return scaler


def iterate_iterators(trainer: Trainer) -> Iterator[object]:
    """Yield what the loops of a Trainer iterate their loaders with at the moment; about 5 µs."""
    fit = getattr(trainer, "fit_loop", None)
    inner = getattr(getattr(fit, "epoch_loop", None), "val_loop", None)
    others = (getattr(trainer, f"{stage}_loop", None) for stage in ("validate", "test", "predict"))
    for loop in (fit, inner, *others):
        yield from _iterators_of(loop)


def iterate_training_iterators(trainer: Trainer) -> Iterator[object]:
    """Yield what a fit iterates its training loaders with at the moment; about 2 µs."""
    yield from _iterators_of(getattr(trainer, "fit_loop", None))


def _iterators_of(loop: object) -> Iterable[object]:
    loader = getattr(loop, "_combined_loader", None)
    return getattr(getattr(loader, "_iterator", None), "iterators", None) or ()


def iterate_evaluations(trainer: Trainer, stage: str) -> Iterator[tuple[Any, str]]:
    """Yield each evaluation loop that a call of the Trainer may run, and the name of its stage.

    Args:
        trainer: The Trainer.
        stage: What was called: ``fit``, ``validate``, ``test`` or ``predict``.
    """
    if stage == "fit":
        yield trainer.fit_loop.epoch_loop.val_loop, _STAGES["validate"]
    else:
        yield getattr(trainer, f"{stage}_loop"), _STAGES[stage]


def iterate_exchanges(trainer: Trainer, stage: str) -> Iterator[tuple[Any, str]]:
    """Yield object and name of each method in which ranks exchange something for every batch.

    The gradients are not among it.

    Before each fetch Lightning (from 2.6 on) asks the first rank whether it was told to leave, and
    a rank that is ahead waits there for it.

    Args:
        trainer: The Trainer.
        stage: What was called.
    """
    if stage == "fit" and trainer.world_size > 1:
        loop, name = trainer.fit_loop.epoch_loop, "_broadcast_sigterm_tensor"
        if hasattr(loop, name):
            yield loop, name


def stage_name(stage: str) -> str:
    """Return the name of a stage: train, validation, test or prediction."""
    return _STAGES[stage]


def is_tuning(trainer: Trainer) -> bool:
    """Return whether a tuner tries something out: it takes all callbacks away while it trains.

    ``lr_find``, ``scale_batch_size`` and the callbacks of the same name do, for their trials only.
    """
    return not any(
        kind.__name__ == "CostLensCallback"
        for callback in trainer.callbacks
        for kind in type(callback).__mro__
    )


def is_overridden(owner: object, hook: str, base_name: str) -> bool:
    """Return whether an object's hook is another than the one of its framework's base class.

    Args:
        owner: A module, data module or callback.
        hook: Name of the hook.
        base_name: Name of the base class; without such a base every hook counts as overridden.
    """
    base = next((kind for kind in type(owner).__mro__ if kind.__name__ == base_name), None)
    if base is None or hook in vars(owner):
        return True
    return getattr(type(owner), hook, None) is not getattr(base, hook, None)
