"""The parts of the console report that speak of several attempts and ranks, and of a live run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from costlens.core.records import Outcome
from costlens.core.run_record import AttemptSummary, RankSummary, RunRecord
from costlens.export.console_endings import describe_stalls, show_outcome
from costlens.export.console_layout import Renderable
from costlens.export.figures import show_duration, show_money, show_time

__all__ = ["describe_attempts", "describe_now", "describe_ranks"]

_MAX_ATTEMPTS = 8
_MAX_RANKS = 8
_UNEVEN_S = 15.0


def describe_now(record: RunRecord, now: float) -> Iterable[Renderable]:
    """Yield what a run that has not ended by itself is doing, or was doing when last seen."""
    outcome = record.attempts[-1].outcome
    newest = record.attempts[-1].number
    ranks = [rank for rank in record.ranks if rank.attempt == newest and rank.open_phase]
    if outcome not in {Outcome.RUNNING, Outcome.LOST} or not ranks:
        return
    yield _describe_beats(ranks, now)
    is_live = outcome is Outcome.RUNNING
    phases = Counter(rank.open_phase for rank in ranks)
    for phase, count in sorted(phases.items(), key=lambda item: (-item[1], item[0])):
        inside = [rank for rank in ranks if rank.open_phase == phase]
        longest = max(inside, key=lambda rank: _open_s(rank, now))
        age = show_duration(_open_s(longest, now))
        if len(ranks) == 1:
            yield f"in {phase} for {age}" if is_live else f"it was in {phase}, for {age} by then"
        else:
            verb = "" if is_live else "were "
            yield f"{count} of {len(ranks)} ranks {verb}in {phase}, rank {longest.rank} for {age}"
    yield from describe_stalls(ranks)


def _describe_beats(ranks: list[RankSummary], now: float) -> str:
    oldest = min(ranks, key=lambda rank: (rank.heartbeat_time, rank.rank))
    newest_s = max(0.0, now - max(rank.heartbeat_time for rank in ranks))
    oldest_s = max(0.0, now - oldest.heartbeat_time)
    line = f"last heartbeat {show_duration(newest_s)} ago"
    if oldest_s - newest_s > _UNEVEN_S:
        line += f", rank {oldest.rank}'s {show_duration(oldest_s)} ago"
    return line


def _open_s(rank: RankSummary, now: float) -> float:
    # A lost rank's phase ended, as far as anybody knows, when it was last seen.
    waited_s = max(0.0, now - rank.heartbeat_time) if rank.outcome is Outcome.RUNNING else 0.0
    return (rank.open_phase_s or 0.0) + waited_s


def describe_attempts(record: RunRecord) -> Iterable[Renderable]:
    """Yield the attempts of a run that was launched more than once, the newest last."""
    if len(record.attempts) < 2:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("")
    table.add_column("began (UTC)", no_wrap=True)
    for title in ("lasted", "steps", "cost"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("ended", overflow="fold")
    for attempt in record.attempts[-_MAX_ATTEMPTS:]:
        money = record.cost.by_attempt.get(str(attempt.number))
        table.add_row(
            str(attempt.number),
            show_time(attempt.start_time),
            show_duration(attempt.wall_s),
            _steps(attempt),
            show_money(money) if money else "–",
            _ending(attempt),
        )
    if len(record.attempts) > _MAX_ATTEMPTS:
        yield Text(f"{len(record.attempts) - _MAX_ATTEMPTS} earlier ones are left out", "dim")
    yield table


def _steps(attempt: AttemptSummary) -> str:
    if attempt.start_step is None and attempt.end_step is None:
        return "–"
    ends = (attempt.start_step, attempt.end_step)
    return " → ".join("?" if step is None else f"{step:,}" for step in ends)


def _ending(attempt: AttemptSummary) -> str:
    exit_code = None if attempt.exit_code is None else f"exit code {attempt.exit_code}"
    details = [detail for detail in (attempt.error_type, exit_code, attempt.signal) if detail]
    return show_outcome(attempt) + (f" ({', '.join(details)})" if details else "")


def describe_ranks(record: RunRecord) -> Iterable[Renderable]:
    """Yield how even the ranks are, and those that stand out; nothing for a single rank."""
    ranks = record.ranks
    if len(ranks) < 2:
        return
    timed = [rank for rank in ranks if rank.median_iteration_s is not None]
    if timed:
        by_speed = sorted(timed, key=lambda rank: (rank.median_iteration_s or 0.0, rank.rank))
        fast, slow = by_speed[0], by_speed[-1]
        yield (
            f"median iteration {show_duration(fast.median_iteration_s or 0.0)} "
            f"(rank {fast.rank}) to {show_duration(slow.median_iteration_s or 0.0)} "
            f"(rank {slow.rank} on {slow.host_name})"
        )
    outcomes = Counter(rank.outcome for rank in ranks)
    if len(outcomes) > 1:
        usual = outcomes.most_common(1)[0][0]
        odd = [rank for rank in ranks if rank.outcome is not usual]
        named = ", ".join(f"rank {r.rank} {r.outcome.value}" for r in odd[:_MAX_RANKS])
        more = f" and {len(odd) - _MAX_RANKS} more" if len(odd) > _MAX_RANKS else ""
        yield Text(f"{named}{more}; the others {usual.value}", "yellow")
