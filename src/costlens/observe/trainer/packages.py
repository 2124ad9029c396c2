"""The two packages of Lightning, which hold the same classes.

``lightning.py`` asks here for the base classes that make its callback one of the loaded packages.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TypeVar

from costlens.errors import MissingExtraError

__all__ = ["as_callback", "callback_classes"]

_NAMES = ("lightning.pytorch", "pytorch_lightning")

_Kind = TypeVar("_Kind")


def callback_classes() -> tuple[type, ...]:
    """Return the ``Callback`` class of each Lightning package that is loaded.

    When none is, the first that can be imported is loaded: the Trainer will need it.

    Raises:
        MissingExtraError: If no Lightning package is installed.
    """
    loaded = [module for name in _NAMES if hasattr(module := sys.modules.get(name), "Callback")]
    return tuple(module.Callback for module in loaded or [_import_first()] if module is not None)


def _import_first() -> ModuleType:
    for name in _NAMES:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name not in (name, name.partition(".")[0]):
                raise
    raise MissingExtraError(
        "CostLensCallback needs Lightning, and none is installed: pip install 'costlens[lightning]'"
    )


_made: dict[tuple[type, tuple[type, ...]], type] = {}


def as_callback(kind: type[_Kind], classes: tuple[type, ...]) -> type[_Kind]:
    """Return a subclass of ``kind`` and of the given classes, always the same for the same ones.

    It carries the name of ``kind``, and ``kind`` itself as ``door``.
    """
    if (kind, classes) in _made:
        return _made[kind, classes]
    missing = tuple(each for each in classes if not issubclass(kind, each))
    own = {
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
        "door": kind,
    }
    made = _made[kind, classes] = type(kind.__name__, (kind, *missing), own)
    return made
