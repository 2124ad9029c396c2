"""What the report says of a run's precision: one row, where there is something to say."""

from __future__ import annotations

from costlens.core.run_record import RunRecord
from costlens.export.console_layout import join
from costlens.export.figures import show_count, show_duration, show_money

__all__ = ["describe_precision"]


def describe_precision(record: RunRecord) -> str | None:
    """Return what the run computes in and why, with what it lost by it; None for plain fp32."""
    part = record.precision
    if part is None:
        return None
    has_skipped = bool(part.skipped_steps)
    if part.requested == "off" and not has_skipped and part.effective in {None, "fp32"}:
        return None
    reason = None if part.requested == "off" else f"{part.requested}: {part.reason}"
    scale = None if part.loss_scale is None else f"loss scale {part.loss_scale:g}"
    return join(part.effective or "as the loop has it", reason, scale, _describe_skipped(record))


def _describe_skipped(record: RunRecord) -> str | None:
    part = record.precision
    if part is None or not part.skipped_steps:
        return None
    cost = part.skipped_cost
    money = "" if cost is None else f" and {show_money(cost, record.cost.currency)}"
    took = "" if not part.skipped_s else f" took {show_duration(part.skipped_s)}{money}"
    return f"{show_count(part.skipped_steps)} skipped steps{took}"
