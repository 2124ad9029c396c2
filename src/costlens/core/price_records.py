"""What an attempt is charged at, frozen at its start: money is a decimal string, in one currency.

``account/prices.py`` and the price book fill it, ``account/cost.py`` charges by it. Absent means
unknown, never zero.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from costlens.core.part import Label, Part

__all__ = ["SHARE_PATTERN", "EnergyPricePart", "PricePart"]

AMOUNT_PATTERN = r"^[0-9]{1,12}(\.[0-9]{1,12})?$"
SHARE_PATTERN = r"^[0-9]{1,9}(\.[0-9]{1,40})?$"


class PricePart(Part):
    """The price an attempt is charged at, frozen at its start."""

    amount: str = Field(
        pattern=AMOUNT_PATTERN,
        description="Money per hour and unit, as a decimal string.",
    )
    unit: Literal["gpu", "node"]
    share: str = Field(
        pattern=SHARE_PATTERN,
        description="Units this rank pays for, as a decimal string; a node shared by 4 is 0.25.",
    )
    currency: str
    source: str = Field(description="Where the price came from, such as COSTLENS_GPU_HOUR_PRICE.")
    discount: str | None = Field(
        None,
        pattern=r"^(0(\.[0-9]{1,12})?|1(\.0{1,12})?)$",
        description="Share (0 to 1) that comes off the amount, as a decimal string.",
    )
    capacity_type: Literal["on_demand", "spot", "reserved"] | None = Field(
        None, description="How the capacity was bought; absent where nobody says it."
    )
    entry: Label | None = Field(None, description="What the price book has the price of.")
    entry_source: Label | None = Field(None, description="Where the price book has it from.")
    since: str | None = Field(
        None,
        pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
        description="The first day it holds; absent where nobody dates it.",
    )


class EnergyPricePart(Part):
    """The price of electricity that an attempt is charged at, frozen at its start."""

    amount_per_kwh: str = Field(
        pattern=AMOUNT_PATTERN, description="Money per kilowatt-hour, as a decimal string."
    )
    currency: str
    source: str
