"""The precision of a plain torch loop: ``run.autocast()`` and ``run.scaler`` are answered here.

What to compute in is decided once, at the first of the two, when the model is where it trains;
``precision.py`` decides.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch

from costlens.core.precision_records import PrecisionPart
from costlens.protect.precision import (
    PrecisionChoice,
    Request,
    choose_precision,
    look_at_hardware,
    make_autocast,
    make_scaler,
)

__all__ = ["PlainPrecision"]

_NAMES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float64: "fp64"}


class PlainPrecision:
    """The precision of one run; training thread.

    Args:
        requested: The setting.
        find_model: Returns the model that is watched, or None.
        publish: Takes what the record says, once.
        earlier: What the run computed in before it was resumed; to be told before the first use.
    """

    def __init__(
        self,
        requested: Request,
        find_model: Callable[[], torch.nn.Module | None],
        publish: Callable[[PrecisionPart], None],
        earlier: str = "",
    ) -> None:
        self.earlier = earlier
        self._requested: Request = requested
        self._find_model = find_model
        self._publish = publish
        self._settled: tuple[PrecisionChoice, torch.device] | None = None
        self._scaler: torch.amp.GradScaler | None = None

    def autocast(self) -> AbstractContextManager[object]:
        """Return a context manager for a forward pass; it does nothing in fp32.

        Takes 1 µs more than torch's own.

        Raises:
            ConfigError: If a format is demanded that the hardware would only emulate.
        """
        return make_autocast(*self._settle())

    @property
    def scaler(self) -> torch.amp.GradScaler:
        """Return the scaler, always the same; it passes everything through outside of fp16.

        Raises:
            ConfigError: As :meth:`autocast`.
        """
        if self._scaler is None:
            self._scaler = make_scaler(*self._settle())
        return self._scaler

    def _settle(self) -> tuple[PrecisionChoice, torch.device]:
        if self._settled is None:
            tensor = _first_weight(self._find_model())
            device = _training_device() if tensor is None else tensor.device
            explicit = None if self._requested == "off" else _find_explicit(tensor, device)
            choice = choose_precision(
                self._requested,
                look_at_hardware(device),
                explicit=explicit,
                earlier=self.earlier,
            )
            self._settled = choice, device
            if self._requested != "off":
                part = PrecisionPart(
                    requested=choice.requested,
                    effective=choice.effective or explicit,
                    reason=choice.reason,
                )
                self._publish(part)
        return self._settled


def _first_weight(model: torch.nn.Module | None) -> torch.Tensor | None:
    weights = () if model is None else model.parameters()
    return next((weight for weight in weights if weight.is_floating_point()), None)


def _training_device() -> torch.device:
    # Nobody has said where the model is; asking CUDA would initialise it.
    is_cuda = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return torch.device("cuda", torch.cuda.current_device()) if is_cuda else torch.device("cpu")


def _find_explicit(tensor: torch.Tensor | None, device: torch.device) -> str | None:
    """Return what the user's own code has chosen: weights of another type, or an autocast."""
    if tensor is not None and tensor.dtype is not torch.float32:
        return _NAMES.get(tensor.dtype, str(tensor.dtype).removeprefix("torch."))
    if not _is_autocast_on(device.type):
        return None
    return _NAMES.get(_autocast_type(device.type), "an autocast of its own")


def _is_autocast_on(kind: str) -> bool:
    try:
        return torch.is_autocast_enabled(kind)
    except TypeError:  # before torch 2.4 it knew CUDA alone
        return torch.is_autocast_cpu_enabled() if kind == "cpu" else torch.is_autocast_enabled()


def _autocast_type(kind: str) -> torch.dtype:
    ask = getattr(torch, "get_autocast_dtype", None)
    if ask is not None:
        found: torch.dtype = ask(kind)
        return found
    return torch.get_autocast_cpu_dtype() if kind == "cpu" else torch.get_autocast_gpu_dtype()
