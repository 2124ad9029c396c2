"""What rank 0 knows of the job, and what readers make of attempts that repeat themselves.

``gang.py`` fills a :class:`GangPart`, ``account/restarts.py`` a :class:`RestartLoopPart`. As in
``core/records.py`` absent means unknown, never zero, and money is a decimal string.
"""

from __future__ import annotations

from pydantic import Field

from costlens.core.part import Part, Tally

__all__ = ["MAX_NAMED", "GangPart", "RestartLoopPart"]

MAX_NAMED = 64
"""Most ranks that are named; their number is told however many there are."""


class GangPart(Part):
    """What rank 0 sees of the other ranks, and of the attempts before this one."""

    num_reporting: Tally | None = Field(
        None,
        description="Ranks that wrote their record not long ago, or ended by their own word.",
    )
    missing_ranks: list[Tally] = Field(
        default_factory=list,
        max_length=MAX_NAMED,
        description="Ranks that fell silent, or never wrote a record; the first 64.",
    )
    num_restarts: Tally | None = Field(None, description="Attempts before this one.")
    restart_loop: Tally | None = Field(
        None,
        description="Attempts in a row that ended badly and got no further, until this one does.",
    )


class RestartLoopPart(Part):
    """Attempts in a row that ended badly at nearly the same step, or made none."""

    num_attempts: int
    first_attempt: int
    last_attempt: int
    step: int | None = Field(
        None, description="The furthest optimizer step they reached; null when unknown."
    )
    num_steps: int | None = Field(
        None, description="Optimizer steps that the newest of them made; null when unknown."
    )
    since: float = Field(description="Unix time at which the first of them began.")
    error_type: str | None = Field(None, description="What ended them, where it was the same.")
    currency: str | None = None
    money: str | None = Field(
        None,
        description="What those of them cost that got no further; null where a price is missing.",
    )
