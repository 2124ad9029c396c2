"""What is known of a run that ended badly: its own last words, or those of a witness.

The pipeline thread gathers them before the last record is written; where the process could not
speak any more, a reader on the same machine says what it sees. Types and code locations only:
messages of exceptions, arguments and the environment may hold anything.
"""

from __future__ import annotations

from collections.abc import Mapping

from costlens.core.attempt_state import AttemptState
from costlens.core.clock import NS_PER_S
from costlens.core.records import Outcome, RankRecord
from costlens.core.training_records import QualityPart
from costlens.core.trouble_records import LastWordsPart, OomPart
from costlens.observe.oom import recount_oom
from costlens.observe.placement.flight_recorder import find_dump
from costlens.observe.process import is_alive, pid_space

__all__ = ["BAD_OUTCOMES", "gather_last_words", "witness_end"]

BAD_OUTCOMES = frozenset({Outcome.FAILED, Outcome.PREEMPTED, Outcome.INTERRUPTED})

_NUM_KEPT = 12


def gather_last_words(
    state: AttemptState, nonfinite: Mapping[str, int | None]
) -> LastWordsPart | None:
    """Return what is known of a bad end, None of a good one; reads two small files.

    Args:
        state: The attempt, with how it ended.
        nonfinite: The first iteration in which a quality metric was not finite, by its name.
    """
    if state.outcome not in BAD_OUTCOMES:
        return None
    state.oom = recount_oom(state.oom)
    name, iteration = _first(nonfinite)
    began = state.anchor.to_wall_ns(state.start_ns) / NS_PER_S
    return LastWordsPart(
        error_type=state.error_type,
        exit_code=state.exit_code,
        signal=state.signal,
        stack=list(state.error_stack[:_NUM_KEPT]),
        oom_kills=_num_kills(state.oom),
        nonfinite=name,
        nonfinite_iteration=iteration,
        xid=state.last_xid,
        flight_recorder=find_dump(state.rank.rank, began),
    )


def witness_end(record: RankRecord) -> LastWordsPart | None:
    """Return what can be said of a live record's process that is gone, None where it may live.

    Only a reader on the machine and in the pid namespace of the process can tell.

    Args:
        record: A record whose attempt has not ended, as far as it says.
    """
    rank = record.rank
    if rank.pid_space is None or rank.pid_start_ticks is None or rank.pid_space != pid_space():
        return None
    if is_alive(rank.pid, rank.pid_start_ticks):
        return None
    name, iteration = _first(_nonfinite(record.quality))
    return LastWordsPart(
        signal=record.attempt.signal,
        oom_kills=_num_kills(recount_oom(record.oom)),
        nonfinite=name,
        nonfinite_iteration=iteration,
        xid=next((gpu.last_xid for gpu in record.gpus if gpu.last_xid is not None), None),
        flight_recorder=find_dump(rank.rank, record.attempt.start_time),
    )


def _first(nonfinite: Mapping[str, int | None]) -> tuple[str | None, int | None]:
    known = [(iteration, name) for name, iteration in nonfinite.items() if iteration is not None]
    iteration, name = min(known, default=(None, None))
    return name, iteration


def _nonfinite(quality: Mapping[str, QualityPart]) -> dict[str, int | None]:
    return {name: part.first_nonfinite_iteration for name, part in quality.items()}


def _num_kills(oom: OomPart | None) -> int | None:
    return None if oom is None else max(0, oom.count - oom.start_count)
