"""What the host does between the batches, and what of it holds the training up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costlens.diagnose.copies import copied_s
from costlens.diagnose.launching import MIN_IDLE_SHARE
from costlens.diagnose.measures import MIN_SHARE, is_event, is_on_device

if TYPE_CHECKING:
    from costlens.diagnose.evidence import Evidence

__all__ = ["held_up_s", "is_held_up"]


def is_held_up(evidence: Evidence, phase: str) -> bool:
    """Return whether the host spends enough in a phase for it to hold the training up.

    Args:
        evidence: The evidence.
        phase: A phase of iterations.
    """
    host_s = evidence.host_s[phase]
    return host_s >= MIN_SHARE * evidence.iteration_s and not is_event(evidence, host_s)


def held_up_s(evidence: Evidence, phase: str) -> float | None:
    """Return for how long a phase of the host holds the training up; None where that is unknown.

    Without a device all of it. With one the lesser of it and the time in which no kernel ran: a
    host that waits for the device inside the phase, or runs ahead of it, holds nothing up.

    Args:
        evidence: The evidence.
        phase: A phase of iterations.
    """
    if not is_on_device(evidence):
        return evidence.time_s[phase]
    idle = evidence.steady_idle_s
    if idle is None:
        return None
    idle = max(0.0, idle - copied_s(evidence))
    return (
        min(idle, evidence.host_s[phase]) if idle >= MIN_IDLE_SHARE * evidence.iteration_s else 0.0
    )
