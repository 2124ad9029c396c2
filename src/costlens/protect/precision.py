"""Mixed precision by the hardware: what a run computes in, and why.

``COSTLENS_PRECISION=auto`` is the opt-in; without it nothing changes. :func:`choose_precision` is
pure; :func:`look_at_hardware` asks torch and never initialises CUDA. The doors apply the choice.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

import torch

from costlens.errors import ConfigError

__all__ = [
    "Format",
    "Hardware",
    "PrecisionChoice",
    "Request",
    "choose_precision",
    "look_at_cpu",
    "look_at_hardware",
    "make_autocast",
    "make_scaler",
]

Request = Literal["off", "auto", "bf16", "fp16", "fp32"]
"""What a setting asks for; ``off`` leaves the training as it is."""

Format = Literal["bf16", "fp16", "fp32"]

_BF16_SINCE = (8, 0)
_FP16_SINCE = (7, 0)
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, slots=True)
class Hardware:
    """What the device of a run can do.

    Args:
        kind: Kind of device, such as ``cpu`` or ``cuda``.
        capability: Compute capability of a CUDA device; None elsewhere, or where it is not known.
        has_fast_bf16: Whether a CPU multiplies bf16 in hardware (AMX or AVX512-BF16).
    """

    kind: str
    capability: tuple[int, int] | None = None
    has_fast_bf16: bool = False

    def can(self, wanted: Format) -> bool:
        """Return whether it computes in a format without emulating it.

        A V100 or T4 says yes to bf16 where torch is asked in the usual way, and emulates it.
        """
        if wanted == "fp32":
            return True
        if self.kind == "cuda":
            since = _BF16_SINCE if wanted == "bf16" else _FP16_SINCE
            return self.capability is not None and self.capability >= since
        return wanted == "bf16" and self.kind == "cpu" and self.has_fast_bf16


@dataclass(frozen=True, slots=True)
class PrecisionChoice:
    """What a run computes in.

    Args:
        requested: What was asked for.
        effective: What it is; None where the training was left as it is.
        reason: Why, a sentence without a full stop.
    """

    requested: Request
    effective: Format | None
    reason: str

    @property
    def needs_scaler(self) -> bool:
        """Return whether gradients have to be scaled: the range of fp16 is short."""
        return self.effective == "fp16"


def choose_precision(
    requested: Request, hardware: Hardware, *, explicit: str | None = None, earlier: str = ""
) -> PrecisionChoice:
    """Return what to compute in.

    Args:
        requested: The setting.
        hardware: What the device can do.
        explicit: What the user's own code has chosen, such as Lightning's ``16-mixed``; it is
            never overridden.
        earlier: What the run computed in before it was resumed; it stays that way where the
            hardware can, for a change would not be the same run.

    Raises:
        ConfigError: If a format is demanded that the hardware would only emulate.
    """
    if requested == "off":
        return PrecisionChoice("off", None, "COSTLENS_PRECISION is off")
    if explicit is not None:
        return PrecisionChoice(requested, None, f"the training has chosen {explicit} itself")
    if requested != "auto":
        return _demanded(requested, hardware)
    if earlier in {"bf16", "fp16", "fp32"}:
        if hardware.can(kept := _as_format(earlier)):
            return PrecisionChoice("auto", kept, f"the run began in {kept}")
        best, reason = _best(hardware)
        return PrecisionChoice(
            "auto", best, f"the run began in {kept}, which this hardware cannot do; {reason}"
        )
    return PrecisionChoice("auto", *_best(hardware))


def _demanded(wanted: Format, hardware: Hardware) -> PrecisionChoice:
    # On a CPU both are slow rather than wrong, and tests are run there.
    if hardware.kind != "cpu" and not hardware.can(wanted):
        raise ConfigError(
            f"precision cannot be {wanted!r} (from COSTLENS_PRECISION): {_describe(hardware)} would"
            " only emulate it, more slowly than fp32; auto takes what it can"
        )
    return PrecisionChoice(wanted, wanted, "COSTLENS_PRECISION asks for it")


def _best(hardware: Hardware) -> tuple[Format, str]:
    shown = _describe(hardware)
    if hardware.can("bf16"):
        return "bf16", f"{shown} computes in bf16"
    if hardware.can("fp16"):
        return "fp16", f"{shown} computes in fp16, and only emulates bf16"
    return "fp32", f"{shown} has no faster format"


def _describe(hardware: Hardware) -> str:
    if hardware.kind == "cuda" and hardware.capability is not None:
        return "a GPU of compute capability {}.{}".format(*hardware.capability)
    return {"cpu": "this CPU", "cuda": "a GPU of unknown capability"}.get(
        hardware.kind, f"a device of kind {hardware.kind}"
    )


def _as_format(text: str) -> Format:
    found: dict[str, Format] = {"bf16": "bf16", "fp16": "fp16"}
    return found.get(text, "fp32")


def look_at_hardware(device: torch.device) -> Hardware:
    """Return what a device can do; start-up, never initialises CUDA.

    Args:
        device: The device the model is on.
    """
    if device.type == "cuda":
        capability = (
            torch.cuda.get_device_capability(device) if torch.cuda.is_initialized() else None  # type: ignore[no-untyped-call]
        )
        return Hardware("cuda", capability)
    return Hardware(device.type, has_fast_bf16=device.type == "cpu" and _cpu_has_fast_bf16())


def look_at_cpu() -> Hardware:
    """Return what this machine's CPU can do."""
    return look_at_hardware(torch.device("cpu"))


def _cpu_has_fast_bf16() -> bool:
    # Older versions of torch lack one or the other.
    asks = [
        getattr(torch.cpu, name, None)
        for name in ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    ]
    return any(ask is not None and ask() for ask in asks)


def make_autocast(choice: PrecisionChoice, device: torch.device) -> AbstractContextManager[object]:
    """Return a context manager for the forward pass; does nothing where nothing was chosen."""
    dtype = _DTYPES.get(choice.effective or "fp32")
    # One that is not enabled would switch off the user's own around it.
    return nullcontext() if dtype is None else torch.autocast(device.type, dtype=dtype)


def make_scaler(choice: PrecisionChoice, device: torch.device) -> torch.amp.GradScaler:
    """Return a scaler that scales where fp16 needs it and passes everything through elsewhere."""
    return torch.amp.GradScaler(device.type, enabled=choice.needs_scaler)
