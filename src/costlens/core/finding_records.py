"""Findings as the records tell them: a rank's own while it runs, and those of the merged run.

``export/finding_parts.py`` makes them of what ``diagnose/`` finds and of the price. As in
``core/records.py`` None means unknown, and money is a decimal string.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from costlens.core.part import Part, Tally, UnixTime

__all__ = [
    "MAX_FINDINGS",
    "MAX_RANKS_NAMED",
    "MAX_SENTENCES",
    "MAX_TEXT",
    "MAX_UNDECIDED",
    "FindingPart",
    "PlacePart",
    "Sentence",
    "UndecidedPart",
    "Word",
]

MAX_FINDINGS = 16
"""Most findings of a record, the least important left out."""

MAX_UNDECIDED = 40
"""Most causes that a record says could not be decided."""

MAX_SENTENCES = 6
"""Most measurements, and most remedies, of one finding."""

MAX_TEXT = 400
"""Most characters of a sentence; what is longer is cut."""

MAX_RANKS_NAMED = 64
"""Most ranks and places that are named; their number is told however many there are."""

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Word = Annotated[str, Field(max_length=100)]
Sentence = Annotated[str, Field(max_length=MAX_TEXT)]
Money = Annotated[str, Field(pattern=r"^[0-9]{1,30}(\.[0-9]{1,40})?$")]


class PlacePart(Part):
    """Hardware that a finding is about, as schedulers and drivers name it."""

    host_name: Sentence
    gpu_uuid: Word | None = Field(None, description="Null where it is the node as a whole.")
    pci_id: Word | None = None


class FindingPart(Part):
    """A named cause of slowness, waste or danger."""

    name: Word
    severity: Literal["info", "warning", "critical"]
    scope: Literal["rank", "job"] = Field(
        "rank", description="Whether ranks show it by themselves, or all of them together."
    )
    money_per_hour: Money | None = Field(
        None, description="What that share costs, as a decimal string; null when unknown."
    )
    money_so_far: Money | None = Field(
        None, description="What it has cost in all of the newest attempt; null when unknown."
    )
    currency: Word | None = None
    share: Share | None = Field(
        None,
        description="Share of the paid time that mending it would save: of the newest minute or "
        "so where is_open is true, else of the whole attempt; null where it is a danger and not a "
        "loss, or cannot be told.",
    )
    is_least: bool = Field(
        False, description="Whether money and share are the least that mending saves."
    )
    ranks: list[Tally] = Field(
        default_factory=list,
        max_length=MAX_RANKS_NAMED,
        description="The ranks that it is found on, the first 64.",
    )
    num_ranks: Tally = 0
    since: UnixTime | None = Field(
        None, description="Unix time from which on it has lasted; null where only the whole tells."
    )
    is_open: bool | None = Field(
        None,
        description="Whether it lasts; null where the attempt as a whole shows it, and it was too "
        "short to say.",
    )
    evidence: list[Sentence] = Field(
        default_factory=list,
        max_length=MAX_SENTENCES,
        description="The measurements it follows from, a sentence each.",
    )
    remedies: list[Sentence] = Field(
        default_factory=list,
        max_length=MAX_SENTENCES,
        description="What would help, a sentence each, the best first.",
    )
    remedy_shares: list[Share | None] = Field(
        default_factory=list,
        max_length=MAX_SENTENCES,
        description="Share of the paid time that each of the remedies would save.",
    )
    traceql: Sentence | None = Field(None, description="A search for spans that show it.")
    runbook: Word | None = Field(None, description="Its section in docs/findings.md.")
    places: list[PlacePart] = Field(
        default_factory=list, max_length=MAX_RANKS_NAMED, description="Hardware to avoid."
    )


class UndecidedPart(Part):
    """A cause of which nobody can tell whether it is there."""

    name: Word
    missing: Sentence = Field(description="The signal that is missing, and how to get it.")
