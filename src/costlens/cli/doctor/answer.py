"""What a check says: a status, what it saw, and what mends it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from costlens.config import Config

__all__ = ["Answer", "Check", "Status", "ok", "problem", "skipped", "warning", "worst"]

Details = Mapping[str, object]
_NOTHING: Details = {}


class Status(str, Enum):
    """How a check came out."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Answer:
    """One thing that a check has to say.

    Args:
        status: How it came out.
        text: What was seen; never a secret.
        fix: What mends it, with the exact variable or command; None where nothing is to be done.
        details: The same for programs, as JSON values.
    """

    status: Status
    text: str
    fix: str | None = None
    details: Details = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing to look at.

    Args:
        name: One or two words.
        look: Returns the answers; may block up to the time limit, on a thread of its own.
        if_late: What mends it where no answer comes in time.
    """

    name: str
    look: Callable[[Config], Iterable[Answer]]
    if_late: str = "check that the place is reachable from here: address, firewall, proxy"


def ok(text: str, details: Details = _NOTHING) -> Answer:
    """Return that all is well."""
    return Answer(Status.OK, text, None, details)


def warning(text: str, fix: str | None = None, details: Details = _NOTHING) -> Answer:
    """Return that a run would go on, with less than it could have."""
    return Answer(Status.WARNING, text, fix, details)


def problem(text: str, fix: str | None = None, details: Details = _NOTHING) -> Answer:
    """Return that a run would fail, or lose what was asked for."""
    return Answer(Status.PROBLEM, text, fix, details)


def skipped(text: str, fix: str | None = None, details: Details = _NOTHING) -> Answer:
    """Return that there was nothing to look at."""
    return Answer(Status.SKIPPED, text, fix, details)


_ORDER = (Status.SKIPPED, Status.OK, Status.WARNING, Status.PROBLEM)


def worst(statuses: Iterable[Status]) -> Status:
    """Return the worst of some statuses; ok where there is none."""
    return max(statuses, key=_ORDER.index, default=Status.OK)
