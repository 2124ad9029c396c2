"""The parts of the console report on how a job's ranks came together, and which went missing."""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text

from costlens.core.records import Outcome
from costlens.core.run_record import RunRecord
from costlens.export.console_layout import Renderable
from costlens.export.figures import show_count, show_duration, show_money, show_time

__all__ = ["describe_gang", "describe_loop", "describe_missing"]

_MAX_SHOWN = 8


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


def describe_missing(record: RunRecord) -> Iterable[Renderable]:
    """Yield which ranks of the newest attempt do not report, where others do."""
    newest = record.attempts[-1]
    if not newest.missing_ranks or not newest.num_reporting:
        return
    verb = "report" if newest.outcome is Outcome.RUNNING else "reported to the end"
    named = ", ".join(str(rank) for rank in newest.missing_ranks[:_MAX_SHOWN])
    more = newest.world_size - newest.num_reporting - _MAX_SHOWN
    yield Text(
        f"{newest.num_reporting} of {newest.world_size} ranks {verb}; missing: rank {named}"
        + (f" and {more} more" if more > 0 else ""),
        "red",
    )


def describe_loop(record: RunRecord) -> Iterable[Renderable]:
    """Yield what is known of a restart loop."""
    loop = record.restart_loop
    if loop is None:
        return
    if loop.step is not None:
        where = f"no further than step {show_count(loop.step)}"
    elif loop.num_steps:
        where = f"{show_count(loop.num_steps)} steps and no further"
    else:
        where = "not to a single step"
    cause = f" ({loop.error_type})" if loop.error_type else ""
    money = f"; that cost {show_money(loop.money, loop.currency)}" if loop.money else ""
    yield Text(
        f"restart loop: attempts {loop.first_attempt} to {loop.last_attempt} got {where}{cause}, "
        f"since {show_time(loop.since)} UTC{money}",
        "red",
    )
