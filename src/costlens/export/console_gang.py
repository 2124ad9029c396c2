"""The parts of the console report on how a job's ranks came together."""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text

from costlens.core.run_record import RunRecord
from costlens.export.console_layout import Renderable
from costlens.export.figures import show_duration

__all__ = ["describe_gang"]


def describe_gang(record: RunRecord) -> Iterable[Renderable]:
    """Yield the time to the first step and the wait for other ranks, where there were others."""
    startup = record.startup
    if startup.first_step_s is not None:
        yield f"first step after {show_duration(startup.first_step_s)}"
    newest = record.attempts[-1].number
    waits = sorted(
        (rank.startup.gang_wait_s, rank.rank)
        for rank in record.ranks
        if rank.attempt == newest and rank.startup.gang_wait_s is not None
    )
    if len(waits) > 1:
        (shortest_s, last), (longest_s, first) = waits[0], waits[-1]
        yield (
            f"waited for the other ranks: {show_duration(longest_s)} (rank {first}) to "
            f"{show_duration(shortest_s)} (rank {last})"
        )
    elif startup.gang_wait_unknown:
        yield Text(f"wait for the other ranks unknown: {startup.gang_wait_unknown}", "dim")
