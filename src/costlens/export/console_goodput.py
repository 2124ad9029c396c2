"""The line of the console report that says what came of the paid time: goodput, and waste by cause.

The table above it says where the time went; only this tells lost work and down time apart.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text

from costlens.account.goodput import LOST_WORK
from costlens.core.goodput_record import SpentPart
from costlens.core.run_record import RunRecord
from costlens.export.console_layout import Renderable, join
from costlens.export.figures import show_duration, show_money, show_share

__all__ = ["describe_goodput"]

_MAX_CAUSES = 4
_MIN_SHARE = 0.005


def describe_goodput(record: RunRecord) -> Iterable[Renderable]:
    """Yield goodput, the largest causes of waste, and what is unpaid; nothing where unknown."""
    part, total_s = record.goodput, record.time_s.get("total", 0.0)
    if total_s <= 0:
        return
    if part.share is not None:
        yield Text(
            f"goodput {show_share(part.share)} of paid time: steps that trained and survived"
        )
    spent_s = {cause: spent.time_s for cause, spent in part.badput.items()}
    # Lost work is told however little it is: the table above shows it as training.
    largest = sorted(spent_s, key=lambda cause: (cause != LOST_WORK, -spent_s[cause], cause))
    shown = [
        _describe(cause, part.badput[cause], total_s, record.cost.currency)
        for cause in largest[:_MAX_CAUSES]
        if cause == LOST_WORK or spent_s[cause] / total_s >= _MIN_SHARE
    ]
    if shown:
        yield f"waste: {join(*shown)}"
    unpaid = [f"{name} {show_duration(s)}" for name, s in part.unpaid_s.items() if s > 0]
    if unpaid:
        yield f"not paid for: {join(*unpaid)}"


def _describe(cause: str, spent: SpentPart, total_s: float, currency: str | None) -> str:
    figures = [show_share(spent.time_s / total_s)]
    if spent.money is not None:
        figures.append(show_money(spent.money, currency))
    return f"{cause.replace('_', ' ')} {', '.join(figures)}"
