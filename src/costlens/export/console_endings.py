"""The parts of the console report on what does not move, and on how a run ended badly."""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text

from costlens.core.run_record import AttemptSummary, RankSummary, RunRecord
from costlens.core.trouble_records import LastWordsPart
from costlens.export.console_layout import Renderable, Row, join, lay_out, plural
from costlens.export.figures import show_duration

__all__ = ["describe_last_words", "describe_stalls", "show_outcome"]

_MAX_STALLS = 4
_NUM_FRAMES = 5
_UNCOVERED = {
    "no_time": "no time to save",
    "no_boundary": "no step ended in time",
    "save_incomplete": "save incomplete",
    "given_up": "save given up",
}


def show_outcome(attempt: AttemptSummary) -> str:
    """Return how an attempt ended and, where it was asked to, whether it lost what it had done."""
    left = attempt.preemption
    if left is None or left.uncovered_because is None:
        return attempt.outcome.value
    return f"{attempt.outcome.value}, {_UNCOVERED[left.uncovered_because]}"


def describe_stalls(ranks: Iterable[RankSummary]) -> Iterable[Renderable]:
    """Yield the ranks that do not move, the longest first, with where the longest stands."""
    stalled = [(rank, rank.stall) for rank in ranks if rank.stall is not None]
    stalled.sort(key=lambda pair: (-pair[1].age_s, pair[0].rank))
    for rank, stall in stalled[:_MAX_STALLS]:
        age, limit = show_duration(stall.age_s), show_duration(stall.limit_s)
        line = f"rank {rank.rank} has not moved in {stall.phase} for {age} (limit {limit})"
        yield Text(line, "bold red")
    if len(stalled) > _MAX_STALLS:
        yield Text(f"and {plural(len(stalled) - _MAX_STALLS, 'rank')} more", "red")
    for _, stall in stalled[:1]:
        yield from _frames(stall.stack)


def describe_last_words(record: RunRecord) -> Iterable[Renderable]:
    """Yield what is known of the newest attempt's bad end."""
    words = record.attempts[-1].last_words
    if words is None:
        return
    rows = list(_rows(words))
    if rows:
        yield lay_out(rows)
    yield from _frames(words.stack)


def _rows(words: LastWordsPart) -> Iterable[Row]:
    exit_code = None if words.exit_code is None else f"exit code {words.exit_code}"
    ended = join(words.error_type, exit_code, words.signal)
    if ended:
        yield "ended by", ended
    if words.oom_kills:
        kills = plural(words.oom_kills, "out-of-memory kill")
        yield "memory", Text(f"{kills} in its cgroup since the start", "red")
    if words.nonfinite is not None:
        where = f"{words.nonfinite} was not finite, first at iteration {words.nonfinite_iteration}"
        yield "before that", where
    if words.xid is not None:
        yield "device", f"XID {words.xid}"
    if words.flight_recorder is not None:
        yield "collectives", f"recorded in {words.flight_recorder}"


def _frames(stack: list[str]) -> Iterable[Renderable]:
    for number, place in enumerate(stack[:_NUM_FRAMES]):
        yield Text(f"{'at' if number == 0 else 'in'} {place}", "dim")
