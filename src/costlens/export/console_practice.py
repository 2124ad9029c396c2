"""The section of the console report on good practice: what a run fails, and what to do."""

from __future__ import annotations

from collections.abc import Iterable

from costlens.core.run_record import RunRecord
from costlens.export.console_layout import Renderable, lay_out

__all__ = ["describe_practice", "practice_title"]

# Their sections say the rest, and nothing is told twice.
_TOLD_IN = {
    "price_set": "see Money",
    "unit_cost_tracked": "see Money",
    "telemetry_healthy": "see Watching",
}


def practice_title(record: RunRecord) -> str:
    """Return the title, with how many checks fail."""
    failed = sum(check.standing == "fail" for check in record.practice)
    return f"Good practice: {failed} of {len(record.practice)} checks fail"


def describe_practice(record: RunRecord) -> Iterable[Renderable]:
    """Yield what to do about each check that fails; nothing of a debug run."""
    failed = [check for check in record.practice if check.standing == "fail"]
    if failed and not record.run.debug:
        yield lay_out(
            (check.name.replace("_", " "), _TOLD_IN.get(check.name) or check.remedy or check.why)
            for check in failed
        )
