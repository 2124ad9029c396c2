"""The part of the console report on checkpoints: what is safe, and what a crash would cost."""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text

from costlens.core.run_record import CheckpointPart, RunRecord
from costlens.export.console_layout import Renderable, Row, join, lay_out, plural
from costlens.export.figures import show_bytes, show_count, show_duration, show_money

__all__ = ["describe_checkpoints"]

_RAILS = {
    "optimum": "the cheapest",
    "durability": "as often as the store allows",
    "tolerable_loss": "set by COSTLENS_MAX_LOSS",
    "overhead": "kept to a tenth of the time",
    "minimum": "the shortest allowed",
    "maximum": "the longest allowed",
}
_MAX_SHOWN = 3


def describe_checkpoints(record: RunRecord) -> Iterable[Renderable]:
    """Yield what is saved, how far apart saves are and why, and what a resume could not restore."""
    part = record.checkpoints
    if part.url is None:
        return
    rows: list[Row] = [
        (
            "saved",
            join(
                plural(part.num_saved, "checkpoint"),
                None if part.last_step is None else f"newest at step {show_count(part.last_step)}",
                None if not part.num_bytes else show_bytes(part.num_bytes),
                f"{part.num_failed} failed" if part.num_failed else None,
                f"{part.num_skipped} skipped" if part.num_skipped else None,
            ),
        ),
        *_describe_interval(part, record.cost.currency),
    ]
    if part.resumed_step is not None:
        rows.append(("resumed", f"at step {show_count(part.resumed_step)}"))
    for title, lines in (("rejected", part.rejected), ("not exact", part.inexact)):
        rows += [(title, Text(line, "dim")) for line in lines[:_MAX_SHOWN]]
    yield lay_out(rows)


def _describe_interval(part: CheckpointPart, currency: str | None) -> Iterable[Row]:
    found = part.interval
    if found is None:
        return
    money = part.worst_loss_money
    kept = None if found.is_loss_kept else "more than COSTLENS_MAX_LOSS: the store is too slow"
    yield (
        "a crash",
        join(
            f"costs at most {show_duration(found.worst_loss_s)} of work",
            None if money is None else show_money(money, currency),
            kept,
        ),
    )
    yield (
        "interval",
        join(
            show_duration(found.interval_s),
            _RAILS.get(found.rail, found.rail),
            f"stall {show_duration(found.stall_s)}",
            f"durable after {show_duration(found.write_s)}",
        ),
    )
