"""What is saved, as ``manager.py`` and its keepers see it: doors know the objects behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

__all__ = ["Layout", "Path", "StatePort"]

Path: TypeAlias = tuple[object, ...]
"""The keys on the way to a place in a state tree."""

Layout: TypeAlias = Callable[[Path], Any]
"""Returns the tensor that is at a place now, None where nothing here takes what is saved there."""


class StatePort(Protocol):
    """What is saved; doors know how to gather and restore it.

    Attributes:
        report: Takes a sentence on what turns out inexact after :meth:`restore`; the manager's.
    """

    report: Callable[[str], object]

    def gather(self, step: int) -> Any:  # noqa: ANN401 - any tree that packs
        """Return the state as a tree; training thread, copies nothing."""

    def restore(self, tree: Any) -> list[str]:  # noqa: ANN401 - the same
        """Put a state back and return what could not be restored exactly, a sentence each."""

    def layout(self) -> Layout:
        """Return what tells how tensors lie here, for a state that other ranks have saved.

        Raises:
            MisfitError: If a state of another number of ranks cannot be taken.
        """

    def renew(self, tree: Any) -> None:  # noqa: ANN401 - the same
        """Let a rank that was not there at the save go on with random numbers of its own."""
