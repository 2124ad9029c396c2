"""Where the time and the money of a training run go.

What a user imports stands here and loads on first use, so that ``import costlens`` loads neither
torch nor the OTel SDK, NVML or fsspec.
"""

from time import perf_counter_ns
from typing import TYPE_CHECKING

__all__ = ["Config", "Run", "__version__", "start"]

# Tells how much of start-up was over by then.
_import_ns = perf_counter_ns()

if TYPE_CHECKING:
    from costlens.config import Config
    from costlens.run import Run, start

    __version__: str
else:
    _HOMES = {"Config": "costlens.config", "Run": "costlens.run", "start": "costlens.run"}

    def __getattr__(name: str) -> object:
        """Return a public name, loaded on first use."""
        if name == "__version__":
            from importlib.metadata import version

            return version("costlens")
        if name in _HOMES:
            from importlib import import_module

            return getattr(import_module(_HOMES[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
