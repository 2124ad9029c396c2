"""Compares two runs: each figure's change, the noise of both, and what that comes to.

A verdict rests on steady training (``account/steady.py``), where noise can be told: start-up,
restores and lost work happen once a run, and one run does not tell how much they vary. Between two
like runs, a figure is called better or worse in one comparison of a hundred at most; phases are
held to that on their own. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from costlens.account.comparability import have_other_currencies, why_not_comparable
from costlens.account.noise import MIN_WINDOWS, difference_margin, student_quantile
from costlens.core.comparison_records import (
    ComparedFigure,
    ComparedFinding,
    Comparison,
    EstimatePart,
    FigurePart,
    RunSummary,
    Verdict,
)

__all__ = ["FALSE_ALARM_RATE", "compare_runs"]

FALSE_ALARM_RATE = 0.01
"""Share of comparisons of like runs in which any figure may be called better or worse."""

RESOLUTION = 0.001
"""Changes of a smaller share than this are never told from noise, however quiet two runs are."""

_INTERVAL = 0.95
_FIRM = frozenset({"better", "worse", "within_noise"})
_Better = Literal["lower", "higher"]
_Change = Literal["new", "gone", "stays", "undecided"]
_CHANGES: tuple[_Change, ...] = ("new", "stays", "undecided", "gone")

_FIGURES: Mapping[str, tuple[str, _Better]] = {
    "step_s": ("s", "lower"),
    "iteration_s": ("s", "lower"),
    "tokens_per_s": ("tokens/s", "higher"),
    "slots_per_s": ("slots/s", "higher"),
    "samples_per_s": ("samples/s", "higher"),
    "cost_per_million_productive_tokens": ("money", "lower"),
    "cost_per_million_tokens": ("money", "lower"),
    "cost_per_productive_step": ("money", "lower"),
    "goodput": ("share", "higher"),
}
_ABSENT = FigurePart(unknown="the run has no counts for it")
_NOTHING = FigurePart(value=0.0, steady=EstimatePart(value=0.0, error=0.0, freedom=1.0))


@dataclass(frozen=True, slots=True)
class _Judge:
    """Says what becomes of each figure of one family.

    Args:
        rate: Share of comparisons in which one figure may be called better or worse by noise.
        floor: Least margin, in the unit of the figure; None takes it from the figure itself.
        fail_above: The share that a figure may be worse by; None refuses nothing.
    """

    rate: float
    floor: float | None
    fail_above: float | None

    def compare(
        self,
        name: str,
        kind: tuple[str, _Better],
        a: FigurePart,
        b: FigurePart,
        why_not: str | None,
    ) -> ComparedFigure:
        """Return the figure side by side."""
        unit, better = kind
        change = b.value / a.value - 1 if a.value and b.value is not None else None
        margin = self._margin(a, b)
        verdict, reason = self._judge(a, b, margin, better, why_not)
        worse_by = 0.0 if change is None else change if better == "lower" else -change
        # Where noise is not known, nothing excuses a change.
        is_blind = verdict == "unknown" and margin is None and change is not None
        may_be_worse = is_blind or verdict == "worse"
        is_over = self.fail_above is not None and worse_by > self.fail_above
        return ComparedFigure(
            name=name,
            unit=unit,
            better=better,
            a=a,
            b=b,
            change=change,
            noise_a=_own_noise(a),
            noise_b=_own_noise(b),
            margin=margin / a.steady.value if margin and a.steady and a.steady.value else margin,
            verdict=verdict,
            reason=reason,
            is_judged=is_blind or verdict in _FIRM,
            is_too_bad=may_be_worse and is_over,
        )

    def _margin(self, a: FigurePart, b: FigurePart) -> float | None:
        if a.steady is None or b.steady is None:
            return None
        floor = RESOLUTION * a.steady.value if self.floor is None else self.floor
        return max(difference_margin(a.steady, b.steady, self.rate), floor)

    def _judge(
        self, a: FigurePart, b: FigurePart, margin: float | None, better: str, why_not: str | None
    ) -> tuple[Verdict, str | None]:
        if a.value is None or b.value is None:
            side, missing = ("A", a) if a.value is None else ("B", b)
            return "unknown", f"{side}: {missing.unknown or _ABSENT.unknown}"
        if why_not is not None:
            return "not_comparable", why_not
        if margin is None or a.steady is None or b.steady is None:
            return "unknown", f"noise is not known: a run has fewer than {MIN_WINDOWS} windows"
        whole, steady = b.value - a.value, b.steady.value - a.steady.value
        return _weigh(whole, steady, margin, better)


def _weigh(whole: float, steady: float, margin: float, better: str) -> tuple[Verdict, str | None]:
    """Return what changes of the whole and of its steady part come to."""
    if abs(steady) <= margin:
        if abs(whole) <= margin:
            return "within_noise", None
        return "unknown", "start-up, restores or lost work changed it, and happen once a run"
    if whole * steady < 0:
        return "unknown", "steady training changed it one way, and what happens once the other"
    return ("worse" if (steady > 0) == (better == "lower") else "better"), None


def compare_runs(a: RunSummary, b: RunSummary, *, fail_above: float | None = None) -> Comparison:
    """Return two runs side by side, with a verdict for each figure.

    Args:
        a: The run that is compared with.
        b: The run that is judged.
        fail_above: The share (0.05 is 5 %) that a figure may be worse by.
    """
    figures = _compare_figures(a, b, fail_above)
    return Comparison(
        a=a,
        b=b,
        differences={
            name: (a.setting.get(name), b.setting.get(name))
            for name in dict.fromkeys([*a.setting, *b.setting])
            if a.setting.get(name) != b.setting.get(name)
        },
        figures=figures,
        phases=_compare_phases(a, b),
        findings=_compare_findings(a, b),
        notes=[*_tell("A", a), *_tell("B", b), *_same_run(a, b)],
        fail_above=fail_above,
        too_bad=[figure.name for figure in figures if figure.is_too_bad],
    )


def _compare_figures(
    a: RunSummary, b: RunSummary, fail_above: float | None
) -> list[ComparedFigure]:
    names = [name for name in _FIGURES if name in a.figures or name in b.figures]
    pairs = {name: (a.figures.get(name, _ABSENT), b.figures.get(name, _ABSENT)) for name in names}
    why_not = {name: why_not_comparable(name, a, b) for name in names}
    judge = _Judge(_rate(pairs.values()), None, fail_above)
    found = [judge.compare(name, _FIGURES[name], *pairs[name], why_not[name]) for name in names]
    return [*map(_leave_apart, found)] if have_other_currencies(a, b) else found


def _leave_apart(figure: ComparedFigure) -> ComparedFigure:
    """Return a figure of two currencies without what only one of them could tell."""
    if figure.unit != "money":
        return figure
    return figure.model_copy(update={"change": None, "margin": None})


def _compare_phases(a: RunSummary, b: RunSummary) -> list[ComparedFigure]:
    """Return the phases of a step; they sum to all time, so one that is not there took none."""
    if not a.phases or not b.phases:
        return []
    names = list(dict.fromkeys([*a.phases, *b.phases]))
    pairs = {name: (a.phases.get(name, _NOTHING), b.phases.get(name, _NOTHING)) for name in names}
    total = sum(figure.value or 0.0 for figure in a.phases.values())
    judge = _Judge(_rate(pairs.values()), RESOLUTION * total, None)
    why_not = why_not_comparable("phase_s", a, b)
    return [judge.compare(name, ("s", "lower"), *pairs[name], why_not) for name in names]


def _rate(pairs: Iterable[tuple[FigurePart, FigurePart]]) -> float:
    # Bonferroni: the figures of one comparison move together, or not; this holds either way.
    num_judged = sum(a.steady is not None and b.steady is not None for a, b in pairs)
    return FALSE_ALARM_RATE / max(1, num_judged)


def _own_noise(figure: FigurePart) -> float | None:
    steady = figure.steady
    if steady is None or not steady.value:
        return None
    quantile = student_quantile((1 + _INTERVAL) / 2, max(3.0, steady.freedom))
    return quantile * steady.error / steady.value


def _compare_findings(a: RunSummary, b: RunSummary) -> list[ComparedFinding]:
    before = {finding.name: finding for finding in a.findings}
    after = {finding.name: finding for finding in b.findings}
    found = [
        ComparedFinding(
            name=name,
            change=_change_of(name, a, b, is_before=name in before, is_after=name in after),
            a=before.get(name),
            b=after.get(name),
        )
        for name in dict.fromkeys([*after, *before])
    ]
    return sorted(found, key=lambda each: _CHANGES.index(each.change))


def _change_of(
    name: str, a: RunSummary, b: RunSummary, *, is_before: bool, is_after: bool
) -> _Change:
    if is_before and is_after:
        return "stays"
    if name in (a.undecided if is_after else b.undecided):
        return "undecided"
    return "new" if is_after else "gone"


def _tell(side: str, run: RunSummary) -> Sequence[str]:
    return [f"{side}: {note}" for note in run.notes]


def _same_run(a: RunSummary, b: RunSummary) -> Sequence[str]:
    return ["A and B are the same run"] if a.run_id == b.run_id else []
