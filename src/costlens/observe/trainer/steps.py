"""Updates of the parameters: those that optimizers made, and those that a gradient scaler left out.

``watch.py`` hooks a Trainer's optimizers and its scaler when a training starts. What a module
leaves out on purpose is neither.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from costlens.core.overrides import Override
from costlens.core.scopes import CountTaker
from costlens.observe.precision_watch import tell_scale
from costlens.observe.trainer.given import Optimizer
from costlens.observe.trainer.loop import LoopTimes

__all__ = ["StepCounter"]

# Torch's base class has one that only raises.
_NUM_PLAIN_STEPS = 2


class StepCounter:
    """Counts updates until :meth:`remove`; its hooks run on the training thread, about 1 µs.

    Args:
        times: The loop's state, whose counters it changes.
        values: Takes counts that are on a device.

    Attributes:
        num_calls: Calls of an optimizer's step that returned.
        is_silent: Whether an optimizer has no hooks, as those of DeepSpeed; then the Trainer's own
            count has to do for all of them.
    """

    def __init__(self, times: LoopTimes, values: CountTaker) -> None:
        self.times = times
        self.num_calls = 0
        self.is_silent = False
        self._values = values
        self._handles: list[Any] = []
        self._scaler: object = None

    def watch(self, optimizers: Sequence[Optimizer], scaler: object) -> None:
        """Hook the optimizers of a training.

        Args:
            optimizers: All of them.
            scaler: The ``GradScaler`` that may leave updates out, or None.
        """
        self.times.counters.watch_steps()
        self._scaler = scaler
        self.is_silent = not all(hasattr(each, "register_step_post_hook") for each in optimizers)
        for optimizer in () if self.is_silent else optimizers:
            if not _may_nest(optimizer):
                self._handles.append(optimizer.register_step_post_hook(self.count))
                continue
            calls = _Calls(self.times, self.count)
            self._handles.append(optimizer.register_step_pre_hook(calls.begin))
            self._handles.append(optimizer.register_step_post_hook(calls.end))
        if scaler is not None and self._handles:
            self._handles.append(Override(scaler, "step", self._step_scaler))

    def remove(self) -> None:
        """Take all hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def tell_scale(self, number: int) -> None:
        """Hand over the scale of the scaler, if there is one; also after :meth:`remove`."""
        tell_scale(self._values, self._scaler, number)

    def count(self, optimizer: Optimizer, *_: object) -> None:
        """Count a call of an optimizer's step that returned."""
        self.num_calls += 1
        counters = self.times.counters
        found_inf = getattr(optimizer, "found_inf", None)
        if found_inf is None or not isinstance(found_inf, torch.Tensor):
            counters.optimizer_steps += 1
            return
        # A fused optimizer decides on the device whether it skips; the scaler lends it its flag.
        number = counters.iterations
        self._values.add_count("skipped_steps", found_inf, number)
        self._values.add_count("optimizer_steps", 1 - found_inf, number)

    def _step_scaler(self, step: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        before = self.num_calls
        result = step(*args, **kwargs)
        if self.num_calls == before:
            self.times.counters.skipped_steps += 1
        return result


def _may_nest(optimizer: Optimizer) -> bool:
    """Return whether a step of this optimizer may call one that it inherits."""
    return sum("step" in vars(kind) for kind in type(optimizer).__mro__[:-1]) > _NUM_PLAIN_STEPS


class _Calls:
    """The calls of one optimizer: torch reports a step that calls the one it inherits twice."""

    __slots__ = ("_count", "_depth", "_num_begun", "_times")

    def __init__(self, times: LoopTimes, count: Callable[[Optimizer], None]) -> None:
        self._times = times
        self._count = count
        self._num_begun = 0
        self._depth = 0

    def begin(self, _optimizer: Optimizer, _args: object, _kwargs: object) -> None:
        """Note that a call begins."""
        num_begun = self._times.num_begun
        if num_begun != self._num_begun:  # calls from before that did not return never will
            self._num_begun, self._depth = num_begun, 0
        self._depth += 1

    def end(self, optimizer: Optimizer, _args: object, _kwargs: object) -> None:
        """Note that a call returned, and count it unless another one is around it."""
        self._depth -= 1
        if self._depth == 0:
            self._count(optimizer)
