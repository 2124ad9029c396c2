"""What ``PlainLoop`` knows of the run above it and of the hooks that report to it."""

from __future__ import annotations

from typing import Protocol

__all__ = ["NOBODY", "Host", "Watch", "WatchedModel"]


class Host(Protocol):
    """The run that a loop reports to."""

    is_active: bool


class Watch(Protocol):
    """Hooks on one object of the user."""

    def target(self) -> object:
        """Return the watched object, or None when it is gone."""

    def remove(self) -> None:
        """Take the hooks off."""


class WatchedModel(Watch, Protocol):
    """Hooks on a model."""

    def is_training(self) -> bool:
        """Return whether a forward pass now would be one of training."""

    def see_step(self) -> None:
        """Learn that an optimizer stepped."""


class _Nobody:
    is_active = False


NOBODY = _Nobody()
"""Stands in for the run once the hooks are off."""
