"""What is compared: the figures of a run with their noise, and what two of them come to.

A :class:`RunSummary` is also what a saved baseline holds, so that a run can be compared with one
whose folder is gone. ``account/run_summary.py`` makes it, ``account/comparison.py`` compares two.
As in ``core/records.py`` None means unknown, never zero.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from costlens.core.part import Part
from costlens.core.records import Outcome

__all__ = [
    "BASELINE_SCHEMA",
    "COMPARISON_SCHEMA",
    "ComparedFigure",
    "ComparedFinding",
    "Comparison",
    "EstimatePart",
    "FigurePart",
    "FindingSeen",
    "RunSummary",
    "Verdict",
]

BASELINE_SCHEMA: Literal["costlens.baseline/1"] = "costlens.baseline/1"
COMPARISON_SCHEMA: Literal["costlens.comparison/1"] = "costlens.comparison/1"

Number = Annotated[float, Field(ge=0, lt=1e30, allow_inf_nan=False)]
Text = Annotated[str, Field(max_length=300)]
Verdict = Literal["better", "worse", "within_noise", "not_comparable", "unknown"]


class EstimatePart(Part):
    """A mean over the windows of steady training, and how sure it is."""

    value: Number
    error: Number = Field(description="Standard error, for windows that depend on one another too.")
    freedom: Annotated[float, Field(ge=1, lt=1e9, allow_inf_nan=False)] = Field(
        description="Degrees of freedom of the error."
    )


class FigurePart(Part):
    """One figure of a run."""

    value: Number | None = Field(None, description="Null when unknown.")
    exact: Text | None = Field(None, description="The same as a decimal string, where it is money.")
    steady: EstimatePart | None = Field(
        None,
        description="The part of it that repeats all the time: without start-up, restores and lost "
        "work. Null where too few windows tell.",
    )
    unknown: Text | None = Field(None, description="Why there is no value.")


class FindingSeen(Part):
    """A finding of a run, as far as it is compared."""

    name: Text
    severity: Text
    money_per_hour: Text | None = None


class RunSummary(Part):
    """What a run is reduced to before it is compared; a saved baseline is one of these."""

    schema_version: Literal["costlens.baseline/1"] = BASELINE_SCHEMA
    run_id: Text
    name: Text
    outcome: Outcome
    num_attempts: int = Field(ge=1)
    setting: dict[Text, Text] = Field(
        default_factory=dict, description="What the run ran on and with, as far as it is known."
    )
    currency: Text | None = None
    token_basis: Literal["tokens", "slots"] | None = None
    per: Literal["step", "iteration"] = Field(
        "iteration", description="What the times of phases are taken per."
    )
    samples_per_step: Number | None = Field(
        None, description="Samples of all ranks in an optimizer step."
    )
    num_windows: int = Field(0, ge=0, description="Windows of steady training.")
    num_startup_windows: int = Field(0, ge=0, description="Left out: start-up, restores, the end.")
    num_warmup_windows: int = Field(0, ge=0, description="Left out: slower than what followed.")
    figures: dict[Text, FigurePart] = Field(default_factory=dict)
    phases: dict[Text, FigurePart] = Field(
        default_factory=dict, description="Seconds of a step, or an iteration, by phase."
    )
    findings: list[FindingSeen] = Field(default_factory=list)
    undecided: list[Text] = Field(
        default_factory=list, description="Names of findings that nobody can tell of."
    )
    notes: list[Text] = Field(default_factory=list, description="What a reader has to know of it.")


class ComparedFigure(Part):
    """One figure of two runs side by side."""

    name: Text
    unit: Text
    better: Literal["lower", "higher"]
    a: FigurePart
    b: FigurePart
    change: float | None = Field(
        None, description="b / a - 1; null when one is unknown, a is 0, or their currencies differ."
    )
    noise_a: Number | None = Field(
        None, description="The run's own noise: half of its 95 % interval, as a share of the value."
    )
    noise_b: Number | None = None
    margin: Number | None = Field(
        None, description="The change, as a share, that noise alone may come to."
    )
    verdict: Verdict
    reason: Text | None = Field(None, description="Why it is unknown, or not comparable.")
    is_judged: bool = Field(
        False,
        description="Whether it could be found worse than allowed: it changed within noise or "
        "beyond it, or its noise is not known and excuses nothing.",
    )
    is_too_bad: bool = Field(False, description="Whether it is worse by more than was allowed.")


class ComparedFinding(Part):
    """A finding in two runs; absent on a side is null."""

    name: Text
    change: Literal["new", "gone", "stays", "undecided"] = Field(
        description="Undecided: a run does not have it, and could not tell."
    )
    a: FindingSeen | None = None
    b: FindingSeen | None = None


class Comparison(Part):
    """Two runs compared; ``a`` is the one that ``b`` is judged by."""

    schema_version: Literal["costlens.comparison/1"] = COMPARISON_SCHEMA
    a: RunSummary
    b: RunSummary
    differences: dict[str, tuple[str | None, str | None]] = Field(
        default_factory=dict, description="Settings that differ, with both values."
    )
    figures: list[ComparedFigure]
    phases: list[ComparedFigure]
    findings: list[ComparedFinding]
    notes: list[str] = Field(default_factory=list)
    fail_above: float | None = Field(
        None, description="The share that a figure may be worse by; null where nothing is refused."
    )
    too_bad: list[str] = Field(
        default_factory=list, description="Names of the figures that are worse than allowed."
    )
