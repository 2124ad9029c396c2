"""The port to an accelerator: events in a stream of work that the host does not wait for.

``device_values`` and ``device_events`` speak to a :class:`Device`; ``device_cuda`` implements it
and ``testing.FakeDevice`` imitates it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch

__all__ = ["Device", "Event"]


class Event(Protocol):
    """A point in a device's stream of work."""

    def query(self) -> bool:
        """Return whether the device has passed this point; any thread, never waits."""


class Device(Protocol):
    """One stream of an asynchronous device; nothing here waits for it."""

    def record_event(self) -> Event:
        """Return an event behind everything enqueued so far; training thread, about 3 µs."""

    def elapsed_ns(self, first: Event, second: Event) -> int:
        """Return the device's nanoseconds between two events that it has passed."""

    def recycle(self, event: Event) -> None:
        """Take back an event that nobody asks about any more; any thread."""

    def copy_out(self, host: torch.Tensor, ring: torch.Tensor) -> None:
        """Enqueue a copy of ``ring``, on the device, to ``host``, pinned; any thread."""
