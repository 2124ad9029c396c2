"""Puts hooks on the user's model, optimizers and gradient scaler, for loops without a framework.

``Run.watch`` calls it. The hooks report to ``PlainLoop``; they change no number, break no compiled
graph and do nothing in copies and pickles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from costlens.errors import ConfigError
from costlens.observe.flops import count_parameters
from costlens.observe.model_watch import ModelWatch
from costlens.observe.optimizer_watch import OptimizerWatch, ScalerWatch
from costlens.observe.plain_loop import PlainLoop
from costlens.observe.watch import Watch

__all__ = ["watch_objects"]


def watch_objects(
    loop: PlainLoop, model: object, optimizers: Iterable[object], scaler: object = None
) -> None:
    """Put hooks on a model, optimizers and a scaler, each only once however often this is called.

    Raises:
        ConfigError: If one of them has no hooks to offer.
    """
    if not isinstance(model, torch.nn.Module):
        raise ConfigError(f"watch() takes a torch.nn.Module as the model, not {_kind(model)}")
    found: list[Callable[[], Watch]] = []
    if loop.find(model) is None:
        found.append(lambda: ModelWatch(loop, model))
    for optimizer in optimizers:
        if not isinstance(optimizer, torch.optim.Optimizer) or not hasattr(
            optimizer, "_optimizer_step_pre_hooks"
        ):
            raise ConfigError(
                f"watch() takes torch.optim.Optimizer objects after the model, not "
                f"{_kind(optimizer)}; pass the torch optimizer that it wraps, and a GradScaler as "
                "scaler="
            )
        if loop.find(optimizer) is None:
            found.append(_deferred(OptimizerWatch, loop, optimizer))
    if scaler is not None and loop.find(scaler) is None:
        if not callable(getattr(scaler, "step", None)):
            raise ConfigError(f"watch() takes a gradient scaler as scaler=, not {_kind(scaler)}")
        found.append(_deferred(ScalerWatch, loop, scaler))
    for make in found:
        watch = make()
        loop.watches.append(watch)
        if isinstance(watch, ModelWatch):
            loop.models.append(watch)
            loop.add_parameters(count_parameters(model))


def _deferred(kind: Callable[..., Watch], loop: PlainLoop, target: object) -> Callable[[], Watch]:
    return lambda: kind(loop, target)


def _kind(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
