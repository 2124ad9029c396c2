"""How much detail spans show, and what somebody asks for while a run is running: pure.

``costlens tune`` writes a :class:`Control` into the run folder, ``observe/tuning.py`` reads it once
a window, and ``core/kept.py`` keeps iterations accordingly.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from costlens.core.part import Count, UnixTime
from costlens.core.telemetry_records import Detail

__all__ = ["Control", "parse_control"]

_MAX_RANKS = 1000


class Control(BaseModel):
    """What is asked of a running run, as it stands in the run folder."""

    # A newer costlens may ask for more than this one knows; the rest still holds.
    model_config = ConfigDict(extra="ignore", frozen=True)

    detail: Detail
    until: UnixTime | None = Field(
        None, description="Unix time from which on detail is normal again."
    )
    ranks: tuple[Count, ...] | None = Field(
        None, min_length=1, max_length=_MAX_RANKS, description="Only these; absent: all."
    )

    @model_validator(mode="after")
    def _check_end(self) -> Control:
        if self.detail is not Detail.NORMAL and self.until is None:
            raise ValueError("until, the Unix time at which it ends, is needed")
        return self

    def detail_of(self, rank: int, now: float) -> Detail:
        """Return the detail in force.

        Args:
            rank: Whose.
            now: Unix time by that rank's own clock: hosts whose clocks differ end at moments that
                differ as much.
        """
        if self.ranks is not None and rank not in self.ranks:
            return Detail.NORMAL
        return Detail.NORMAL if self.is_over(now) else self.detail

    def is_over(self, now: float) -> bool:
        """Return whether its time is over at the Unix time ``now``."""
        return self.until is not None and now >= self.until


def parse_control(data: bytes, max_bytes: int) -> Control:
    """Return what a control file asks for.

    Args:
        data: What the file holds; anything.
        max_bytes: More than so many are not looked at.

    Raises:
        ValueError: If it asks for nothing that can be understood; says why in a line.
    """
    if len(data) > max_bytes:
        raise ValueError(f"it is larger than {max_bytes} bytes")
    try:
        return Control.model_validate_json(data)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
        # Names of the model alone: what else stands in the file is not ours to repeat.
        known = [str(part) for part in problem["loc"] if part in Control.model_fields]
        what = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "json_invalid":
            what = "it is no JSON"
        raise ValueError(": ".join([*known, what])) from None
