"""The checks of good practice as the merged record tells them. Pure."""

from __future__ import annotations

from costlens.core.practice_records import CheckPart
from costlens.core.run_record import RunRecord
from costlens.diagnose.practice import check_practice
from costlens.export.finding_parts import cut_text

__all__ = ["list_checks"]


def list_checks(record: RunRecord) -> list[CheckPart]:
    """Return all checks of a run, in the order in which they are told."""
    return [
        CheckPart(
            name=check.name,
            standing=check.standing.value,
            why=cut_text(check.why),
            remedy=None if check.remedy is None else cut_text(check.remedy),
        )
        for check in check_practice(record)
    ]
