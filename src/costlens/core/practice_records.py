"""Good practice as the merged record tells it: whether a run is prepared, and what to do.

``diagnose/practice.py`` judges it, ``export/practice_parts.py`` makes the parts.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from costlens.core.finding_records import Sentence, Word
from costlens.core.part import Part

__all__ = ["CheckPart"]


class CheckPart(Part):
    """One check of good practice."""

    name: Word
    standing: Literal["pass", "fail", "unknown"]
    why: Sentence = Field(description="What the standing follows from.")
    remedy: Sentence | None = Field(None, description="What to do; null where it passes.")
