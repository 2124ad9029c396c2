"""The states of a rank as numbers, which is how a panel can colour them."""

from __future__ import annotations

from costlens.export.readings import STATES
from grafana.names import select

__all__ = ["STATE_TEXTS", "state_number"]

_COLOURS = {
    "starting": "blue",
    "running": "green",
    "evaluating": "super-light-green",
    "checkpoint": "purple",
    "idle": "yellow",
    "stopping": "super-light-blue",
    "completed": "dark-green",
    "stopped_early": "dark-blue",
    "interrupted": "orange",
    "failed": "red",
    "preempted": "dark-orange",
}

STATE_TEXTS = {number: (name, _COLOURS[name]) for number, name in enumerate(STATES, start=1)}
"""Word and colour of each number."""


def state_number(*matchers: str) -> str:
    """Return a query for the number of the state that each rank is in."""
    each = [
        select("costlens.run.state", *matchers, f'costlens_state="{name}"') + f" * {number}"
        for number, (name, _) in STATE_TEXTS.items()
    ]
    return f"({' or '.join(each)}) > 0"
