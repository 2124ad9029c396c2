"""Which work of a run survived: steps that were done again are lost, the others make goodput.

Works on the steps where attempts began and ended, which doorways observe; what a doorway does not
know stays unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from costlens.core.phases import Phase
from costlens.core.records import Outcome
from costlens.core.run_record import AttemptSummary, RunProgress

__all__ = ["PRODUCTIVE_PHASES", "count_lost_steps", "goodput_share"]

PRODUCTIVE_PHASES: tuple[Phase, ...] = (
    Phase.FORWARD,
    Phase.BACKWARD,
    Phase.OPTIMIZER,
    Phase.COMPUTE,
)
"""The phases that train the model; all others are the price of doing so."""


def count_lost_steps(
    attempts: Sequence[AttemptSummary], steps_made: Mapping[int, int]
) -> dict[int, int] | None:
    """Return how many optimizer steps of each attempt were done again later; None when unknown.

    Where an attempt resumes at a step, everything reached beyond that step is lost, whichever
    attempt had made it.

    Args:
        attempts: The attempts in order.
        steps_made: Optimizer steps each attempt made, by its number.
    """
    lost = dict.fromkeys(steps_made, 0)
    surviving: list[tuple[int, int, int]] = []  # attempt, first step, last step
    for attempt in attempts:
        made = steps_made[attempt.number]
        start = attempt.start_step
        if start is None and attempt.end_step is not None:
            start = attempt.end_step - made
        if start is None:
            if made == 0 and attempt.outcome is not Outcome.RUNNING:
                continue  # it never got to a step, so nothing tells where it would have resumed
            if len(attempts) == 1:
                break
            return None
        surviving = _cut_back(surviving, start, lost)
        end = attempt.end_step if attempt.end_step is not None else start + made
        surviving.append((attempt.number, start, max(start, end)))
    return {number: min(count, steps_made[number]) for number, count in lost.items()}


def _cut_back(
    surviving: list[tuple[int, int, int]], resumed_at: int, lost: dict[int, int]
) -> list[tuple[int, int, int]]:
    kept = []
    for number, start, end in surviving:
        lost[number] += max(0, end - max(start, resumed_at))
        if start < resumed_at:
            kept.append((number, start, min(end, resumed_at)))
    return kept


def goodput_share(time_s: Mapping[str, float], progress: RunProgress) -> float | None:
    """Return the share (0 to 1) of paid time in productive steps that survived; None when unknown.

    Lost steps are taken to have cost what an average step did.

    Args:
        time_s: Seconds per phase and their ``total``, as in ``RunRecord``.
        progress: Steps made, and how many of them survived.
    """
    total_s = time_s.get("total", 0.0)
    if progress.productive_steps is None or not progress.optimizer_steps or total_s <= 0:
        return None
    productive_s = sum(time_s.get(phase.name.lower(), 0.0) for phase in PRODUCTIVE_PHASES)
    return productive_s * progress.productive_steps / progress.optimizer_steps / total_s
