"""No launcher: one process, one rank, a launch of its own."""

from __future__ import annotations

from collections.abc import Mapping

from costlens.observe.placement.place import Placement

__all__ = ["detect"]


def detect(_environ: Mapping[str, str]) -> Placement:
    """Return the placement of a process that nobody launched as part of a group."""
    return Placement()
