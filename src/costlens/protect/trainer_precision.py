"""The precision of a Lightning Trainer: its plugin is replaced where the user has chosen none.

``lightning.py`` asks once in ``setup``, before the Trainer puts the model to work. Through the
public setter of the strategy, and for one device or DDP only: other strategies have converted the
weights by then.
"""

from __future__ import annotations

import importlib
from typing import Any, TypeAlias

from costlens.core.precision_records import PrecisionPart
from costlens.errors import ConfigError
from costlens.protect.precision import (
    Hardware,
    PrecisionChoice,
    Request,
    choose_precision,
    look_at_hardware,
    make_scaler,
)

__all__ = ["TrainerPrecision", "serves"]

Trainer: TypeAlias = Any
"""A ``Trainer`` of ``lightning.pytorch`` or ``pytorch_lightning``, neither of which is loaded."""

_DEFAULT = "32-true"
_DEFAULT_PLUGINS = {"Precision", "FSDPPrecision", "DeepSpeedPrecision", "XLAPrecision"}
_FLAGS = {"bf16": "bf16-mixed", "fp16": "16-mixed"}
_FORMATS = {"bf16-mixed": "bf16", "16-mixed": "fp16", _DEFAULT: "fp32"}
_SERVED = {"SingleDeviceStrategy", "DDPStrategy"}
_REFUSED = {"DeepSpeedStrategy", "SingleDeviceXLAStrategy"}  # they inherit from those
_PACKAGES = {"lightning": "lightning.pytorch", "pytorch_lightning": "pytorch_lightning"}


class TrainerPrecision:
    """The precision of the Trainers that one callback is given to, one after the other.

    Args:
        requested: The setting.
        source: Where it came from, for errors.
        earlier: What the run computed in before it was resumed; to be told before :meth:`settle`.
    """

    def __init__(self, requested: Request, source: str, earlier: str = "") -> None:
        self.earlier = earlier
        self._requested: Request = requested
        self._source = source
        self._plugin: object = None
        self._part: PrecisionPart | None = None

    def settle(self, trainer: Trainer) -> PrecisionPart:
        """Choose for a Trainer, and give it the plugin; training thread, in ``setup``.

        With several ranks rank 0 decides for all, in one broadcast: ranks that scale differently
        would spoil one another's gradients. What a Trainer has got stays, so that a second fit goes
        on with the same scaler.

        Raises:
            ConfigError: If the Trainer's strategy cannot take it, or a format is demanded that
                the hardware would only emulate.
        """
        plugin = trainer.strategy.precision_plugin
        if self._part is None or plugin is not self._plugin:
            explicit = None if _is_default(trainer) else str(trainer.precision)
            choice = self._choose(trainer, explicit)
            if choice.effective in _FLAGS:
                self._replace(trainer, choice)
            self._plugin = trainer.strategy.precision_plugin
            shown = str(trainer.precision)
            self._part = PrecisionPart(
                requested=choice.requested,
                effective=_FORMATS.get(shown, shown),
                reason=choice.reason,
            )
        return self._part

    def _choose(self, trainer: Trainer, explicit: str | None) -> PrecisionChoice:
        # Every rank sees the same setting and the same Trainer, so all of them broadcast or none.
        if self._requested == "off" or explicit is not None:
            return choose_precision(self._requested, Hardware("unknown"), explicit=explicit)
        told = look_at_hardware(trainer.strategy.root_device), self.earlier
        if trainer.world_size > 1:
            told = trainer.strategy.broadcast(told)
        hardware, earlier = told
        return choose_precision(self._requested, hardware, earlier=earlier)

    def _replace(self, trainer: Trainer, choice: PrecisionChoice) -> None:
        strategy, flag = trainer.strategy, _FLAGS[str(choice.effective)]
        if not serves(type(strategy)):
            raise ConfigError(
                f"precision cannot be {self._requested!r} (from {self._source}) with "
                f"{type(strategy).__name__}, which converts the weights its own way before a "
                f"callback is asked; allowed are one device and DDP. Pass "
                f"Trainer(precision={flag!r}) instead, or set COSTLENS_PRECISION=off"
            )
        device = strategy.root_device
        scaler = make_scaler(choice, device) if choice.needs_scaler else None
        plugins = importlib.import_module(f"{_find_package(trainer)}.plugins")
        strategy.precision_plugin = plugins.MixedPrecision(flag, device.type, scaler)


def serves(strategy: type) -> bool:
    """Return whether a kind of strategy takes another precision plugin in ``setup``."""
    names = {base.__name__ for base in strategy.__mro__}
    return bool(names & _SERVED) and not names & _REFUSED


def _is_default(trainer: Trainer) -> bool:
    # Lightning keeps no trace of whether 32-true was written out.
    plugin = trainer.strategy.precision_plugin
    return str(trainer.precision) == _DEFAULT and type(plugin).__name__ in _DEFAULT_PLUGINS


def _find_package(trainer: Trainer) -> str:
    roots = (base.__module__.partition(".")[0] for base in type(trainer).__mro__)
    return next((_PACKAGES[root] for root in roots if root in _PACKAGES), "pytorch_lightning")
