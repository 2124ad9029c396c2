"""What rank 0 knows of the money of the whole run while it runs: totals, and the budget.

``spending.py`` fills both at each heartbeat; they stand in rank 0's record, from where metrics and
reports read them. As in ``core/records.py`` None means unknown, and money is a decimal string.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["UNITS", "BudgetAction", "BudgetPart", "RunTotalsPart"]

BudgetAction = Literal["warn", "stop"]

UNITS = (
    *("token", "productive_token", "sample", "step", "productive_step", "gpu_hour"),
    "effective_gpu_hour",
)
"""What the money of a run is divided by."""

_MONEY = r"^[0-9]{1,20}(\.[0-9]{1,40})?$"


class RunTotalsPart(BaseModel):
    """Totals of the run over its attempts and ranks, as the records tell them to rank 0."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    time_s: float = Field(ge=0, description="Paid seconds of all ranks and attempts.")
    cost: dict[str, str] = Field(
        default_factory=dict, description="Money by currency; empty when unknown, never added up."
    )
    unit_cost: dict[str, str] = Field(
        default_factory=dict,
        description="Money per one token, step and so on, by the names of UNITS; only what is "
        "known, and only where all money is in one currency.",
    )
    is_partial: bool = Field(
        False, description="Whether a price, a rank or an attempt is missing from the cost."
    )
    goodput: float | None = Field(
        None, ge=0, le=1, description="Share of paid time in steps that survived."
    )
    productive_steps: int | None = None
    lost_steps: int | None = None
    tokens: int | None = None
    num_records: int = Field(ge=0, description="Records that were added up.")


class BudgetPart(BaseModel):
    """The budget of the run over all its attempts, and how much of it is spent."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    amount: str = Field(pattern=_MONEY)
    currency: str
    action: BudgetAction
    spent: str | None = Field(
        None, pattern=_MONEY, description="In the budget's currency; null when unknown."
    )
    share: float | None = Field(None, ge=0, description="Spent of the amount; null when unknown.")
    is_partial: bool = Field(False, description="Whether more may be spent than is known.")
    told: list[float] = Field(
        default_factory=list,
        max_length=8,
        description="Shares of the amount that were passed and have been told of.",
    )
