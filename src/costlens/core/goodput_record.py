"""How paid time and money divide into productive work and waste, as the merged record holds it.

``account/goodput.py`` fills it from the ranks' records; the report and the commands over many runs
read it. As in ``core/records.py`` None means unknown, and money is a decimal string.
"""

from __future__ import annotations

from pydantic import Field

from costlens.core.part import Part

__all__ = ["GoodputPart", "SpentPart"]


class SpentPart(Part):
    """A share of the paid time, summed over ranks, and what it cost."""

    time_s: float
    money: str | None = Field(
        None, description="Null where no price is known, or prices are in several currencies."
    )


class GoodputPart(Part):
    """Paid time and money by what came of them; both add up to the run's totals.

    ``training`` and the causes of ``badput`` but ``lost_work`` make the total; so do ``productive``
    and all causes, where lost work is known.
    """

    share: float | None = Field(
        None, description="Share (0 to 1) of paid time in steps that survived; null when unknown."
    )
    training: SpentPart = Field(
        default=SpentPart(time_s=0.0),
        description="Forward, backward, optimizer and compute, whatever became of them.",
    )
    productive: SpentPart | None = Field(
        None, description="The part of training that survived; null when unknown."
    )
    badput: dict[str, SpentPart] = Field(
        default_factory=dict,
        description="The rest by cause: the other phases, and lost_work where it is known.",
    )
    unpaid_s: dict[str, float] = Field(
        default_factory=dict,
        description="Seconds of the job, not of its ranks, that nobody is charged for: down, from "
        "the end of an attempt to the paid start of the next, less the queue; and queue, the waits "
        "for allocations.",
    )
