"""The table of ``costlens runs --group-by``: a line per group and currency, and the total."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from costlens.account.fleet import FleetGroup, FleetSpend

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["make_fleet_table"]

UNKNOWN = "–"
_TITLES = ("runs", "success", "paid", "goodput", "spend", "waste")


def make_fleet_table(groups: Sequence[FleetGroup], total: FleetGroup, grouping: str) -> Table:
    """Return the table; a group that paid in several currencies has a line for each.

    Args:
        groups: The groups in order.
        total: All runs together.
        grouping: What they are grouped by.
    """
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(grouping, overflow="fold")
    for title in _TITLES:
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("spend by outcome", overflow="fold")
    for group in groups:
        _add(table, group)
    if len(groups) > 1:
        _add(table, total, style="bold")
    return table


def _add(table: Table, group: FleetGroup, style: str | None = None) -> None:
    from rich.text import Text

    from costlens.export.figures import show_duration, show_share, show_text

    name = Text(UNKNOWN if group.group is None else show_text(group.group))
    rate = UNKNOWN if group.success_rate is None else show_share(group.success_rate)
    goodput = UNKNOWN if group.goodput is None else show_share(group.goodput)
    facts = [name, str(group.num_runs), rate, show_duration(group.paid_s), goodput]
    lines = [_money(currency, spend) for currency, spend in group.spend.items()]
    notes = _notes(group)
    if notes:
        lines = lines or [(UNKNOWN, UNKNOWN, "")]
        spent, wasted, outcomes = lines[-1]
        lines[-1] = (spent, wasted, f"{outcomes} ({notes})".strip())
    for number, line in enumerate(lines or [(UNKNOWN, UNKNOWN, "")]):
        table.add_row(*(facts if number == 0 else [""] * len(facts)), *line, style=style)


def _money(currency: str, spend: FleetSpend) -> tuple[str, str, str]:
    from costlens.export.figures import money_decimals, show_money, show_text

    decimals = money_decimals(spend.total)
    outcomes = (
        f"{outcome} {show_money(money, decimals=decimals)}"
        for outcome, money in spend.by_outcome.items()
    )
    waste = UNKNOWN if spend.waste is None else show_money(spend.waste, decimals=decimals)
    return show_text(show_money(spend.total, currency)), waste, " · ".join(outcomes)


def _notes(group: FleetGroup) -> str:
    counts = {
        "without a price": group.num_unpriced,
        "in part": group.num_partial,
        "of unknown waste": group.num_waste_unknown,
    }
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count)
