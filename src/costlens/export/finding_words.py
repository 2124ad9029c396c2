"""Of which time the share of a finding is: what a rank tells of its newest minute, or the whole.

The money so far is always that of the whole attempt, so the two are told apart in words.
"""

from __future__ import annotations

from costlens.core.finding_records import FindingPart
from costlens.core.records import Outcome
from costlens.core.run_record import RunRecord

__all__ = ["find_stretch"]


def find_stretch(part: FindingPart, record: RunRecord) -> str | None:
    """Return ``lately``, or ``at the end`` where the attempt is over; None for the whole attempt.

    Args:
        part: A finding of the merged record.
        record: The record that it stands in.
    """
    if not part.is_open or part.share is None:
        return None
    is_running = record.attempts[-1].outcome is Outcome.RUNNING
    return "lately" if is_running else "at the end"
