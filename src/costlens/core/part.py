"""What every piece of a record is made of, and the kinds of numbers and names in it."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Count", "Label", "Part", "Ratio", "Seconds", "Tally", "UnixTime"]

# A file may hold anything. These bounds are far beyond what a run reaches and well within what
# sums, clocks and calendars can take; account/documents.py bounds what is not named here.
Count = Annotated[int, Field(ge=0)]
Tally = Annotated[int, Field(ge=0, lt=2**63)]  # what systems and libraries count in 64 bits
Ratio = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
UnixTime = Annotated[float, Field(ge=0, lt=253_402_300_800, allow_inf_nan=False)]  # to year 9999
Seconds = Annotated[float, Field(ge=0, lt=1e12, allow_inf_nan=False)]
Label = Annotated[str, Field(max_length=200)]


class Part(BaseModel):
    """A piece of a record: frozen, and silent about fields it does not know."""

    # A newer costlens may have written fields this one does not know: readers skip them.
    model_config = ConfigDict(extra="ignore", frozen=True)
