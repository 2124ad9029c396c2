"""Hooks on the user's model, optimizers and gradient scaler, for loops without a framework.

They report to ``PlainLoop``; they change no number, hold no tensor, break no compiled graph, and
their copies and pickles do nothing. Limits: where the model's output holds no plain tensor, the
backward pass begins only once the last parameter's gradient exists; inside a larger compiled
function no pass of the model is seen. What is not seen stays ``compute``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable
from threading import get_ident
from typing import Any

import torch
from torch._dynamo import eval_frame

from costlens.core.guard import faults
from costlens.errors import ConfigError
from costlens.observe.device_cuda import CudaDevice
from costlens.observe.overrides import Override
from costlens.observe.plain_loop import PlainLoop, Watch

__all__ = ["ModelWatch", "OptimizerWatch", "ScalerWatch", "watch_objects"]


class _Hook:
    """A callable that torch keeps in the user's objects.

    A copy of such an object gets a stand-in from the standard library that returns None whatever it
    is called with, so a saved model loads where costlens is not installed.

    Args:
        report: What the hook is for; called with what torch hands over.
    """

    # torch warns when it saves a tensor whose hooks do not say that they may get lost.
    __torch_unserializable__ = True

    def __init__(self, report: Callable[..., None]) -> None:
        self._report = report
        self._contained = faults.contain("plain.hook")

    def __call__(self, *args: Any) -> None:
        """Report; training thread, about 1 µs besides what the report costs."""
        if torch.compiler.is_compiling():
            self._meet_compiler(*args)
        elif _get_callback() is None:
            with self._contained:
                self._report(*args)
        else:
            self._run_apart(*args)

    def _meet_compiler(self, *args: Any) -> None:
        # Being inlined into a graph, this breaks it; an optimizer's step does so anyway.
        self._run_apart(*args)

    # Between compiled functions dynamo would look at these frames, too. The decorator costs 3 µs in
    # a real loop, so it stands only where dynamo is at work.
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _run_apart(self, *args: Any) -> None:
        with self._contained:
            self._report(*args)

    def __reduce__(self) -> tuple[Any, ...]:
        return (getattr, (contextlib.nullcontext(), "__exit__"))


class _ModuleHook(_Hook):
    """A hook of a module; where a larger compiled function calls the module, it breaks no graph."""

    def _meet_compiler(self, *args: Any) -> None:
        return


def _no_callback() -> object:
    return _Hook


# Older releases do not tell whether dynamo is at work: there, hooks always run apart.
_get_callback: Callable[[], object] = getattr(
    torch._C._dynamo.eval_frame,  # noqa: SLF001 - dynamo's own state has no public reader
    "get_eval_frame_callback",
    _no_callback,
)
# Dynamo runs this frame as it is, where it is one of its own, instead of compiling it.
eval_frame.skip_code(_Hook.__call__.__code__)


class ModelWatch:
    """Watches the forward and the backward pass of a module.

    Args:
        loop: Takes the reports.
        model: The root module of the training; it is not kept alive.
    """

    def __init__(self, loop: PlainLoop, model: torch.nn.Module) -> None:
        self._loop = loop
        self._model = weakref.ref(model)
        self._has_device = False
        self._is_device_known = False
        self._trains_in_eval = False
        self._was_eval = False
        engine: Any = torch.autograd.Variable._execution_engine  # noqa: SLF001 - as DDP does
        self._queue_end = engine.queue_callback
        self._backward_hook = _Hook(self._begin_backward)
        self._handles = [
            model.register_forward_pre_hook(_ModuleHook(self._begin_forward), prepend=True),
            model.register_forward_hook(_ModuleHook(self._end_forward), always_call=True),
        ]
        self._has_parameter_hook = False
        self._see_device(model)

    def target(self) -> torch.nn.Module | None:
        """Return the model, or None when it is gone."""
        return self._model()

    def remove(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()

    def is_training(self) -> bool:
        """Return whether a forward pass now would be one of training.

        A model that is trained in evaluation mode (frozen statistics) trains while gradients are
        on.
        """
        model = self._model()
        return model is not None and (model.training or self._is_training_in_eval())

    def see_step(self) -> None:
        """Learn that an optimizer stepped: what went before was training, in whatever mode."""
        self._trains_in_eval |= self._was_eval

    def _is_training_in_eval(self) -> bool:
        return self._trains_in_eval and torch.is_grad_enabled()

    def _begin_forward(self, model: torch.nn.Module, _args: object) -> None:
        if not self._is_device_known:
            # Between watch() and the first pass the model may have moved.
            self._is_device_known = True
            self._see_device(model)
        self._loop.begin_forward(is_training=model.training or self._is_training_in_eval())

    def _end_forward(self, model: torch.nn.Module, _args: object, output: object) -> None:
        has_gradient = output is not None and torch.is_grad_enabled()
        is_training = model.training or self._trains_in_eval
        if self._loop.end_forward(is_trained=has_gradient and is_training) and has_gradient:
            self._was_eval = not model.training
            self._loop.has_eval_gradient |= self._was_eval
            self._await_backward(model, output)

    def _await_backward(self, model: torch.nn.Module, output: object) -> None:
        if type(output) is torch.Tensor:
            if output.grad_fn is not None:
                _hook_gradient(output, self._backward_hook)
            return
        tensor = _find_differentiable(output)
        if tensor is not None:
            _hook_gradient(tensor, self._backward_hook)
        # Gradients may come back through another part of such an output.
        if not self._has_parameter_hook:
            self._has_parameter_hook = True
            for parameter in reversed(list(model.parameters())):
                if parameter.requires_grad:
                    register: Any = parameter.register_post_accumulate_grad_hook
                    self._handles.append(register(_Hook(self._begin_backward)))
                    break

    def _begin_backward(self, _gradient: object) -> None:
        # The engine works for CUDA on a thread of its own, and the training thread waits for it.
        is_waited_for = self._has_device or self._loop.timeline.owner == get_ident()
        if is_waited_for and self._loop.begin_backward():
            self._queue_end(self._loop.end_backward)

    def _see_device(self, model: torch.nn.Module) -> None:
        devices = {parameter.device for parameter in model.parameters() if parameter.is_cuda}
        if devices:
            self._has_device = True
            first = next(parameter.device for parameter in model.parameters() if parameter.is_cuda)
            self._loop.adopt_device(CudaDevice(torch.cuda.current_stream(first)), len(devices))


def _find_differentiable(output: object) -> torch.Tensor | None:
    """Return the first plain tensor in a module's output that gradients will come back to."""
    items: Iterable[object] = ()
    if isinstance(output, dict):
        items = output.values()
    elif isinstance(output, (list, tuple)):
        items = output
    elif dataclasses.is_dataclass(output):
        items = vars(output).values()
    for item in items:
        if type(item) is torch.Tensor and item.grad_fn is not None:
            return item
    return None


def _hook_gradient(tensor: Any, hook: _Hook) -> None:  # noqa: ANN401 - of its internals
    """Do as ``tensor.register_hook`` does, without the handle, which costs 8 of its 13 µs."""
    if tensor._backward_hooks is not None:  # noqa: SLF001 - see above
        tensor.register_hook(hook)
        return
    # A user's own handle wants a dictionary that can be referred to weakly; its keys are >= 0.
    tensor._backward_hooks = OrderedDict(((-1, hook),))  # noqa: SLF001 - see above
    tensor.grad_fn._register_hook_dict(tensor)  # noqa: SLF001 - see above


class OptimizerWatch:
    """Times an optimizer and counts its steps.

    Args:
        loop: Takes the reports.
        optimizer: Has torch's step hooks; it is not kept alive.
    """

    def __init__(self, loop: PlainLoop, optimizer: torch.optim.Optimizer) -> None:
        self._loop = loop
        self._optimizer = weakref.ref(optimizer)
        self._handles = [
            optimizer.register_step_pre_hook(_Hook(self._begin)),
            optimizer.register_step_post_hook(_Hook(self._end)),
        ]

    def target(self) -> torch.optim.Optimizer | None:
        """Return the optimizer, or None when it is gone."""
        return self._optimizer()

    def remove(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()

    def _begin(self, _optimizer: object, _args: object, _kwargs: object) -> None:
        self._loop.begin_step(self)

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
        loop.values.add_count("skipped_steps", found_inf, number)
        loop.values.add_count("optimizer_steps", 1 - found_inf, number)


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

    def target(self) -> torch.amp.GradScaler | None:
        """Return the scaler, or None when it is gone."""
        return self._scaler()

    def remove(self) -> None:
        """Give the scaler its own method back."""
        self._override.remove()

    def _step(self, step: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        loop = self._loop
        before = loop.num_step_calls
        is_timed = False
        with loop.contained:
            is_timed = loop.begin_step(self)
        if not is_timed:
            return step(*args, **kwargs)
        try:
            result = step(*args, **kwargs)
        finally:
            with loop.contained:
                loop.end_step(self)
        if loop.num_step_calls == before:
            loop.recorder.counters.skipped_steps += 1
        return result


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
                f"{_kind(optimizer)}; pass the torch optimizer that it wraps"
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


def _deferred(kind: Callable[..., Watch], loop: PlainLoop, target: object) -> Callable[[], Watch]:
    return lambda: kind(loop, target)


def _kind(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
