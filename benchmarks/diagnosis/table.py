"""What the judgement comes to: the numbers that must hold, and the table of confusions."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.diagnosis.judging import Result

__all__ = ["MAX_FALSE", "MIN_TOP_1", "Score", "make_table", "score"]

MIN_TOP_1 = 0.95
MAX_FALSE = 0.01

_NOTHING = "nothing"


@dataclass(frozen=True)
class Score:
    """How well a set of runs was judged.

    Args:
        num_sick: Runs with a cause.
        num_right: Those of them whose first finding was the dominant cause.
        num_healthy: Sound runs.
        num_false: Those of them with any finding.
        num_money: Right findings of a loss.
        num_stated: Those of them that estimate what they would save.
        num_close: Those of them within 15 % of the simulated saving.
        median_error: By how much the middle one of them misses it, as a share.
        num_least: Right findings that say what they would save at least.
        num_kept: Those of them that say no more than the simulated saving.
    """

    num_sick: int
    num_right: int
    num_healthy: int
    num_false: int
    num_money: int
    num_stated: int
    num_close: int
    median_error: float
    num_least: int
    num_kept: int

    @property
    def top_1(self) -> float:
        """Return the share of sick runs whose first finding was right."""
        return self.num_right / max(1, self.num_sick)

    @property
    def false_share(self) -> float:
        """Return the share of sound runs with a finding."""
        return self.num_false / max(1, self.num_healthy)


def score(results: Sequence[Result]) -> Score:
    """Return how well these runs were judged."""
    sick = [result for result in results if result.truth]
    healthy = [result for result in results if not result.truth]
    right = [result for result in sick if result.is_right]
    money = [result for result in right if result.savings[0] is not None]
    told = [result for result in money if result.money_error is not None]
    least = [result for result in told if result.is_least]
    estimates = [result for result in told if not result.is_least]
    errors = [abs(result.money_error or 0.0) for result in estimates]
    return Score(
        num_sick=len(sick),
        num_right=len(right),
        num_healthy=len(healthy),
        num_false=sum(bool(result.found) for result in healthy),
        num_money=len(money),
        num_stated=len(errors),
        num_close=sum(bool(result.is_close) for result in estimates),
        median_error=statistics.median(errors) if errors else 0.0,
        num_least=len(least),
        num_kept=sum(bool(result.is_close) for result in least),
    )


def make_table(results: Sequence[Result]) -> list[str]:
    """Return the lines of the Markdown table: a row for each cause, and what it was taken for."""
    total = score(results)
    lines = [
        "| planted, alone or dominant | runs | named first | money within 15 % | taken for |",
        "| --- | ---: | ---: | ---: | --- |",
    ]
    names = sorted({result.truth[0] for result in results if result.truth})
    for name in names:
        own = [result for result in results if result.truth[:1] == (name,)]
        part = score(own)
        wrong = Counter(r.found[0] if r.found else _NOTHING for r in own if not r.is_right)
        taken = ", ".join(f"{other} ({num})" for other, num in wrong.most_common())
        money = _tell_money(part)
        lines.append(f"| {name} | {len(own)} | {part.num_right} | {money} | {taken} |")
    lines.append(
        f"| **all** | {total.num_sick} | **{total.top_1:.1%}** | **{_tell_money(total)}** | |"
    )
    shown = (
        f"Of {total.num_healthy} sound runs {total.num_false} had a finding "
        f"({total.false_share:.1%}). The money of right findings misses that of the mended run by "
        f"{total.median_error:.0%} in the middle."
    )
    return [*lines, "", shown]


def _tell_money(part: Score) -> str:
    """Return how many estimates are close, and how many least amounts are not too much."""
    told = []
    if part.num_stated:
        told.append(f"{part.num_close} of {part.num_stated}")
    if part.num_least:
        told.append(f"least: {part.num_kept} of {part.num_least}")
    return ", ".join(told) or "a danger"
