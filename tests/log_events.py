"""Catches the events of costlens's own log, as its taps see them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from costlens.core.log import Event, taps

__all__ = ["capture_events"]


@contextmanager
def capture_events() -> Iterator[list[dict[str, Any]]]:
    """Return the list that events go to while the block runs; `log_level` holds their level."""
    events: list[dict[str, Any]] = []

    def take(event: Event) -> None:
        events.append({**event, "log_level": event.get("level")})

    taps.append(take)
    try:
        yield events
    finally:
        taps.remove(take)
