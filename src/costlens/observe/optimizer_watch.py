"""The steps of optimizers, real and skipped, seen from their hooks and from the scaler around them.

Reports to ``PlainLoop``; a step counts once, however many methods it goes through.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from costlens.core.overrides import Override
from costlens.core.recorder import UNKNOWN
from costlens.observe.hook import Hook
from costlens.observe.plain_loop import PlainLoop
from costlens.observe.precision_watch import SCALE_EVERY_NS, tell_scale

__all__ = ["OptimizerWatch", "ScalerWatch"]


class OptimizerWatch:
    """Times an optimizer and counts its steps.

    Args:
        loop: Takes the reports.
        optimizer: Has torch's step hooks; it is not kept alive.
    """

    def __init__(self, loop: PlainLoop, optimizer: torch.optim.Optimizer) -> None:
        self._loop = loop
        self._optimizer = weakref.ref(optimizer)
        loop.recorder.counters.watch_steps()
        self._handles = [
            optimizer.register_step_pre_hook(Hook(self._begin)),
            optimizer.register_step_post_hook(Hook(self._end)),
        ]

    def target(self) -> torch.optim.Optimizer | None:
        """Return the optimizer, or None when it is gone."""
        return self._optimizer()

    def remove(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()

    def _begin(self, _optimizer: object, _args: object, _kwargs: object) -> None:
        loop = self._loop
        if loop.is_in_backward:
            _close_abandoned_backward(loop)
        loop.begin_step(self)

    def _end(self, optimizer: torch.optim.Optimizer, _args: object, _kwargs: object) -> None:
        loop = self._loop
        if not loop.end_step(self):
            return
        loop.num_step_calls += 1
        if loop.has_eval_gradient:
            for model in loop.models:
                model.see_step()
        counters = loop.recorder.counters
        found_inf = getattr(optimizer, "found_inf", None)
        if not isinstance(found_inf, torch.Tensor):
            counters.optimizer_steps += 1
            return
        # A fused optimizer decides on the device whether it skips; the scaler lends it its flag.
        number = counters.iterations
        is_skipped = found_inf > 0
        loop.values.add_count("skipped_steps", is_skipped, number)
        loop.values.add_count("optimizer_steps", ~is_skipped, number)


def _close_abandoned_backward(loop: PlainLoop) -> None:
    # An optimizer may step inside the backward pass, parameter by parameter; outside one, a pass
    # that is still open has failed.
    if loop.is_in_backward and torch._C._current_graph_task_id() == -1:  # noqa: SLF001 - see above
        loop.abandon_backward()


class ScalerWatch:
    """Counts the steps that a gradient scaler skips: it then does not call the optimizer at all.

    Args:
        loop: Takes the reports.
        scaler: Has ``step(optimizer)``; it is not kept alive.
    """

    def __init__(self, loop: PlainLoop, scaler: torch.amp.GradScaler) -> None:
        self._loop = loop
        self._scaler = weakref.ref(scaler)
        self._override = Override(scaler, "step", self._step)
        self._next_look_ns = 0

    def target(self) -> torch.amp.GradScaler | None:
        """Return the scaler, or None when it is gone."""
        return self._scaler()

    def remove(self) -> None:
        """Give the scaler its own method back, and take its last scale."""
        self._override.remove()
        with self._loop.contained:
            self._read_scale()

    def _read_scale(self) -> None:
        loop = self._loop
        self._next_look_ns = loop.timeline.since_ns + SCALE_EVERY_NS
        tell_scale(loop.values, self._scaler(), loop.recorder.counters.iterations)

    def _step(self, step: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        loop = self._loop
        before = loop.num_step_calls
        is_timed = False
        with loop.contained:
            _close_abandoned_backward(loop)
            is_timed = loop.begin_step(self)
            if is_timed and loop.timeline.since_ns >= self._next_look_ns:
                self._read_scale()
        if not is_timed:
            return step(*args, **kwargs)
        try:
            result = step(*args, **kwargs)
        finally:
            with loop.contained:
                loop.end_step(self)
        # Where no optimizer is watched, nobody knows whether it was called.
        if loop.num_step_calls == before and loop.recorder.counters.skipped_steps != UNKNOWN:
            loop.recorder.counters.skipped_steps += 1
        return result


def watch_scaler(loop: PlainLoop, scaler: torch.amp.GradScaler) -> None:
    """Count the steps that a scaler skips from now on, if that is not done already."""
    if loop.find(scaler) is None:
        loop.watches.append(ScalerWatch(loop, scaler))
