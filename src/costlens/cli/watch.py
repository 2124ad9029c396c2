"""``costlens report --watch``: the report again and again, until the run has ended."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from costlens.core.records import Outcome
from costlens.core.run_record import RunRecord

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["follow", "show_live"]

EVERY_S = 2.0


def follow(
    read: Callable[[], RunRecord],
    show: Callable[[RunRecord], None],
    *,
    only_changes: bool = True,
    every_s: float = EVERY_S,
) -> None:
    """Show a run's record as it changes, until its newest attempt has ended or Ctrl-C.

    Args:
        read: Returns the merged record as it stands.
        show: Shows one.
        only_changes: Whether a record that is as it was is not shown again.
        every_s: Seconds between two looks, > 0.
    """
    shown: RunRecord | None = None
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            record = read()
            if not only_changes or record != shown:
                show(record)
                shown = record
            if record.attempts[-1].outcome is not Outcome.RUNNING:
                return
            time.sleep(every_s)


def show_live(read: Callable[[], RunRecord], console: Console, *, every_s: float = EVERY_S) -> None:
    """Show the report in place on a terminal; elsewhere print it whenever it has changed.

    Args:
        read: Returns the merged record as it stands.
        console: Where to show it.
        every_s: Seconds between two looks, > 0.
    """
    from rich.live import Live

    from costlens.export.console import make_page, render

    if not console.is_terminal or console.options.ascii_only:
        follow(read, lambda record: render(record, console), every_s=every_s)
        return
    with Live(console=console, auto_refresh=False) as live:
        follow(
            read,
            lambda record: live.update(make_page(record, console.width, time.time()), refresh=True),
            only_changes=False,
            every_s=every_s,
        )
