"""The forward and the backward pass of a model, seen from hooks that hold no tensor.

Reports to ``PlainLoop``. Limits: where the model's output holds no plain tensor, the backward pass
begins only once the last parameter's gradient exists; inside a larger compiled function no pass of
the model is seen. What is not seen stays ``compute``.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections import OrderedDict
from collections.abc import Iterable
from threading import get_ident
from typing import Any

import torch
import torch.distributed as dist

from costlens.observe.device_cuda import CudaDevice
from costlens.observe.hook import Hook, ModuleHook
from costlens.observe.plain_loop import PlainLoop

__all__ = ["ModelWatch"]


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
        self._end_backward = loop.end_backward
        self._backward_hook = Hook(self._begin_backward)
        self._handles = [
            model.register_forward_pre_hook(ModuleHook(self._begin_forward), prepend=True),
            model.register_forward_hook(ModuleHook(self._end_forward), always_call=True),
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
        # Of a model that is gone nothing is known, and it must not turn fetches into validation.
        return model is None or model.training or self._is_training_in_eval()

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
            if dist.is_available() and dist.is_initialized():
                self._end_backward = self._end_after_others
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
                    self._handles.append(register(Hook(self._begin_backward)))
                    break

    def _begin_backward(self, _gradient: object) -> None:
        # The engine works for CUDA on a thread of its own, and the training thread waits for it.
        is_waited_for = self._has_device or self._loop.timeline.owner == get_ident()
        if is_waited_for and self._loop.begin_backward():
            self._queue_end(self._end_backward)

    def _end_after_others(self) -> None:
        # DDP and FSDP queue the wait for their collectives during the pass, so after ours: what
        # is queued from here comes behind it. About 2 µs.
        self._queue_end(self._loop.end_backward)

    def _see_device(self, model: torch.nn.Module) -> None:
        devices = {parameter.device for parameter in model.parameters() if parameter.is_cuda}
        if devices:
            self._has_device = True
            first = next(parameter.device for parameter in model.parameters() if parameter.is_cuda)
            stream = CudaDevice(torch.cuda.current_stream(first))
            ordinals = sorted(device.index for device in devices)
            self._loop.adopt_device(stream, len(devices), ordinals)


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


def _hook_gradient(tensor: Any, hook: Hook) -> None:  # noqa: ANN401 - of its internals
    """Do as ``tensor.register_hook`` does, without the handle, which costs 8 of its 13 µs."""
    if tensor._backward_hooks is not None:  # noqa: SLF001 - see above
        tensor.register_hook(hook)
        return
    # A user's own handle wants a dictionary that can be referred to weakly; its keys are >= 0.
    tensor._backward_hooks = OrderedDict(((-1, hook),))  # noqa: SLF001 - see above
    tensor.grad_fn._register_hook_dict(tensor)  # noqa: SLF001 - see above
