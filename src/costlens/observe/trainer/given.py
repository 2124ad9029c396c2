"""Names for what comes from Lightning and from the user.

The same classes exist in two packages, and neither may be imported here, so to a type checker they
are anything; to the reader they are not.
"""

from __future__ import annotations

from typing import Any, TypeAlias

__all__ = ["Optimizer", "Profiler", "Trainer"]

Trainer: TypeAlias = Any
"""A ``Trainer`` of ``lightning.pytorch`` or ``pytorch_lightning``."""

Profiler: TypeAlias = Any
"""A profiler of Lightning's, or of the user's making."""

Optimizer: TypeAlias = Any
"""A ``torch.optim.Optimizer``, or what a strategy made of it."""
