"""What the console report opens with: what to fix first, and what that would save."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from costlens.core.finding_records import FindingPart
from costlens.core.records import Outcome
from costlens.core.run_record import NOT_LOOKED_AT, RunRecord
from costlens.diagnose.causes import COMPUTE_BOUND, find_cause
from costlens.export.console_layout import Renderable, join
from costlens.export.figures import show_money, show_share
from costlens.export.finding_words import find_stretch

__all__ = ["FINDINGS_TITLE", "describe_findings"]

FINDINGS_TITLE = "What to fix first"

_MAX_SHOWN = 3
_MAX_RANKS = 8
_STYLES = {"critical": "bold red", "warning": "yellow", "info": ""}


def describe_findings(record: RunRecord) -> Iterable[Renderable]:
    """Yield the greatest causes with their money and the best remedy, or why there are none."""
    causes = [part for part in record.findings if part.name != COMPUTE_BOUND]
    if not causes:
        yield from _describe_none(record)
        return
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    for number, part in enumerate(causes[:_MAX_SHOWN], 1):
        for label, line in zip((f"{number}", *[""] * 4), _lines(part, record), strict=False):
            table.add_row(label, line)
    yield table
    if rest := causes[_MAX_SHOWN:]:
        yield Text(f"also found: {', '.join(part.name for part in rest)}", "dim")


def _describe_none(record: RunRecord) -> Iterable[Renderable]:
    if record.unjudged == NOT_LOOKED_AT:
        return
    if record.unjudged is not None:
        yield Text(f"not judged: {record.unjudged}", "dim")
    elif record.findings:
        yield Text(f"nothing to fix: {find_cause(COMPUTE_BOUND).title}", "green")
    else:
        yield Text("nothing to fix was found", "green")


def _lines(part: FindingPart, record: RunRecord) -> Iterable[Text]:
    title = find_cause(part.name).title
    when = find_stretch(part, record)
    least = "at least " if part.is_least else ""
    share = None if part.share is None else f"{least}{show_share(part.share)} of the paid time"
    share = f"{when} {share}" if when else share
    rate = part.money_per_hour and f"{least}{show_money(part.money_per_hour, part.currency)}/h"
    so_far = part.money_so_far and f"{least}{show_money(part.money_so_far, part.currency)} so far"
    yield Text(join(title[0].upper() + title[1:], rate or share), _STYLES[part.severity])
    yield Text(join(share if rate else None, so_far, part.name, _name_ranks(part, record)), "dim")
    if part.evidence:
        yield Text(part.evidence[0])
    if part.remedies:
        yield Text(f"→ {part.remedies[0]}", "cyan")


def _name_ranks(part: FindingPart, record: RunRecord) -> str | None:
    is_over = part.is_open is False and record.attempts[-1].outcome is Outcome.RUNNING
    over = "over by now" if is_over else None
    if record.attempts[-1].world_size == 1 or not part.ranks:
        return over
    if part.num_ranks == record.attempts[-1].num_ranks > 1:
        return join("all ranks", over)
    named = ", ".join(str(rank) for rank in part.ranks[:_MAX_RANKS])
    more = f" and {part.num_ranks - _MAX_RANKS} more" if part.num_ranks > _MAX_RANKS else ""
    return join(f"rank {named}{more}" if part.num_ranks == 1 else f"ranks {named}{more}", over)
