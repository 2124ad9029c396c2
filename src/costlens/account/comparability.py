"""Which figures of two runs mean the same, so that one may be called better than the other."""

from __future__ import annotations

from costlens.core.comparison_records import RunSummary

__all__ = ["have_other_currencies", "why_not_comparable"]

_PER_STEP = frozenset({"step_s", "iteration_s", "phase_s", "cost_per_productive_step"})
_SPEED = frozenset(
    {"step_s", "iteration_s", "phase_s", "tokens_per_s", "slots_per_s", "samples_per_s"}
)
_SAME_WORK = ("model", "dataset_version")
_WORDS = {"tokens": "tokens without padding", "slots": "positions with padding"}
_MAX_BATCH_CHANGE = 0.05  # a short last batch in every epoch makes that much


def why_not_comparable(name: str, a: RunSummary, b: RunSummary) -> str | None:
    """Return why a figure of two runs means two things; None where it means one.

    What only one of the runs tells is no difference. Money and goodput are compared over hardware:
    which machine is cheaper is a question that they answer.

    Args:
        name: The figure; ``phase_s`` stands for all phases.
        a: One run.
        b: The other.
    """
    is_money = name.startswith("cost_")
    if is_money and have_other_currencies(a, b):
        return f"money in {a.currency} and in {b.currency} is not compared"
    if is_money and "tokens" in name and _differ(a.token_basis, b.token_basis):
        shown = " and ".join(_WORDS[each] for each in (a.token_basis, b.token_basis) if each)
        return f"another basis: {shown}"
    if name in _SPEED or is_money:
        for setting in _SAME_WORK:
            if (told := _tell(setting, a, b)) is not None:
                return told
    if name in _SPEED and (told := _tell("hardware", a, b)) is not None:
        return told
    return _other_step(a, b) if name in _PER_STEP else None


def have_other_currencies(a: RunSummary, b: RunSummary) -> bool:
    """Return whether the money of two runs is of two kinds, so that nothing leads from A to B."""
    return _differ(a.currency, b.currency)


def _other_step(a: RunSummary, b: RunSummary) -> str | None:
    if a.per != b.per:
        return "one counts optimizer steps, the other iterations"
    here, there = a.samples_per_step, b.samples_per_step
    if here and there and abs(there / here - 1) > _MAX_BATCH_CHANGE:
        return f"another number of samples a step: {here:.4g} and {there:.4g}"
    return None


def _tell(setting: str, a: RunSummary, b: RunSummary) -> str | None:
    here, there = a.setting.get(setting), b.setting.get(setting)
    if not _differ(here, there):
        return None
    return f"another {setting.replace('_', ' ')}: {here} and {there}"


def _differ(here: str | None, there: str | None) -> bool:
    return here is not None and there is not None and here != there
