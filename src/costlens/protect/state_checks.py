"""Whether a saved state fits the objects it is to be restored into, before anything changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from costlens.errors import CheckpointError
from costlens.protect.sharded import describe_sharding

__all__ = ["check_model", "check_optimizer", "unwrap"]

_REMEDY = "resume with what was saved, or start anew at another checkpoint URL"

# Of the shape of their parameter in every optimizer of torch; others keep rows, columns, histories.
_ELEMENTWISE = frozenset(
    {
        *("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "exp_inf", "momentum_buffer", "square_avg"),
        *("grad_avg", "acc_delta", "sum", "ax", "prev"),
    }
)


def unwrap(model: Any) -> Any:  # noqa: ANN401 - a module
    """Return the module inside DDP, DataParallel and ``torch.compile``: its names are plain."""
    while True:
        if isinstance(model, (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)):
            model = model.module
        elif isinstance(getattr(model, "_orig_mod", None), torch.nn.Module):
            model = model._orig_mod  # noqa: SLF001 - torch.compile has no public name for it
        else:
            return model


def check_model(name: str, model: Any, saved: Mapping[str, Any]) -> list[str]:  # noqa: ANN401
    """Return what may differ and does, a sentence each.

    Args:
        name: Of the model among several.
        model: The module to be restored.
        saved: Its state.

    Raises:
        CheckpointError: If keys or shapes differ; names the first of them.
    """
    here = model.state_dict()
    _refuse(name, [key for key in here if key not in saved], "the model has and the checkpoint not")
    _refuse(name, [key for key in saved if key not in here], "the checkpoint has and the model not")
    casts = []
    for key, value in here.items():
        other = saved[key]
        if not isinstance(value, torch.Tensor) or is_lazy(value):
            continue
        shape = tuple(other.shape) if isinstance(other, torch.Tensor) else type(other).__name__
        if shape != tuple(value.shape):
            raise CheckpointError(
                f"model {name!r}: {key!r} is {tuple(value.shape)} and {shape} in the checkpoint;"
                f" {_REMEDY}"
            )
        sharding, saved_sharding = describe_sharding(value), describe_sharding(other)
        if sharding != saved_sharding:
            raise CheckpointError(
                f"model {name!r}: {key!r} is {sharding} and {saved_sharding} in the checkpoint;"
                f" {_REMEDY}, or reshard with torch.distributed.checkpoint"
            )
        if other.dtype is not value.dtype:
            casts.append(f"{key} ({other.dtype} to {value.dtype})")
    if not casts:
        return []
    return [f"model {name!r}: {len(casts)} tensors change their precision, the first {casts[0]}"]


def check_optimizer(
    name: str,
    optimizer: Any,  # noqa: ANN401 - an optimizer
    saved: Mapping[str, Any],
    models: Mapping[str, Any],
) -> None:
    """Look whether an optimizer can take a state.

    Args:
        name: Of the optimizer among several.
        optimizer: The optimizer to be restored.
        saved: Its state.
        models: Whose parameters they are, for names in messages.

    Raises:
        CheckpointError: If groups, parameters or shapes differ; names the first of them.
    """
    groups = getattr(optimizer, "param_groups", None)
    if groups is None or "param_groups" not in saved:
        return
    here = [len(group["params"]) for group in groups]
    there = [len(group["params"]) for group in saved["param_groups"]]
    if here != there:
        raise CheckpointError(
            f"optimizer {name!r} has groups of {here} parameters and the checkpoint of {there};"
            f" {_REMEDY}"
        )
    names = {id(p): key for model in models.values() for key, p in model.named_parameters()}
    parameters = [parameter for group in groups for parameter in group["params"]]
    numbers = [number for group in saved["param_groups"] for number in group["params"]]
    for parameter, number in zip(parameters, numbers, strict=True):
        for key, value in saved["state"].get(number, {}).items():
            if (
                key in _ELEMENTWISE
                and isinstance(value, torch.Tensor)
                and value.shape != parameter.shape
            ):
                raise CheckpointError(
                    f"optimizer {name!r}: {key!r} of {names.get(id(parameter), number)!r} is"
                    f" {tuple(value.shape)} in the checkpoint and the parameter"
                    f" {tuple(parameter.shape)}; {_REMEDY}"
                )


def _refuse(name: str, keys: list[str], text: str) -> None:
    if keys:
        more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
        raise CheckpointError(f"model {name!r}: {keys[0]!r}{more} is what {text}; {_REMEDY}")
