"""The terms of leaving: how long there is, who saves, and what several ranks agree on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from costlens.protect.manifest import Kind

__all__ = ["Agreed", "Grace", "Saver"]


class Saver(Protocol):
    """What saves; the training thread's."""

    @property
    def last_step(self) -> int | None:
        """Return the step of the newest snapshot, durable or not."""

    @property
    def agrees(self) -> bool:
        """Return whether several ranks have to save together."""

    @property
    def estimate_s(self) -> float | None:
        """Return the seconds from the start of a save until it is durable, once measured."""

    def wait(self, timeout_s: float) -> bool:
        """Return whether nothing is in flight any more, after waiting at most ``timeout_s``."""

    def save(self, step: int, kind: Kind) -> bool:
        """Take a snapshot and hand it over; return whether it was taken."""

    def save_together(self, step: int, kind: Kind, stamp: str) -> bool:
        """Do the same on every rank, under a name that all of them make of the stamp."""


@dataclass(frozen=True, slots=True)
class Grace:
    """How a process is to leave.

    Args:
        notice_s: Seconds from a signal until the process is killed, > 0.
        end_s: Most seconds that the record and the flush take.
        exit_code: With what it leaves.
    """

    notice_s: float
    end_s: float
    exit_code: int


@dataclass(frozen=True, slots=True)
class Agreed:
    """What all ranks do at one boundary.

    Args:
        stamp: Names the checkpoint.
        saves: Whether a save fits, as the rank that proposed it has reckoned.
        lead_s: Seconds that it has left when the others come to the boundary, about.
        reason: What asked that rank to leave.
    """

    stamp: str
    saves: bool
    lead_s: float
    reason: str

    def to_text(self) -> str:
        """Return it as the ranks tell it one another."""
        return f"{self.stamp}:{int(self.saves)}:{self.lead_s:.3f}:{self.reason}"

    @classmethod
    def from_text(cls, text: str) -> Agreed:
        """Return what :meth:`to_text` has written."""
        stamp, saves, lead_s, reason = text.split(":", 3)
        return cls(stamp, saves == "1", float(lead_s), reason)
