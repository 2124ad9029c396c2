"""Trace and span ids made from what all ranks know: run id, attempt and trace period.

Ranks that never talk to one another so arrive at the same trace, and a restarted run can link to
the attempt before it. Hashing only; nothing here knows OpenTelemetry.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

from costlens.core.records import RankRecord

__all__ = [
    "Ids",
    "checkpoint_ids",
    "end_ids",
    "iteration_ids",
    "marker_ids",
    "period_ids",
    "queue_ids",
    "rank_ids",
    "run_key",
    "should_trace",
]

MAX_RANKS = 256
"""Up to this many ranks all of them trace every period."""

_NUM_CHOSEN = 64


class Ids(NamedTuple):
    """Where a span stands.

    Args:
        trace_id: 128-bit id of its trace, never 0.
        span_id: 64-bit id of the span itself, never 0.
    """

    trace_id: int
    span_id: int


def run_key(record: RankRecord) -> tuple[str, int]:
    """Return run id and attempt, which telemetry is told apart by and ids are made from."""
    return record.run.id, record.attempt.number


def _hash(num_bytes: int, *parts: str | int) -> int:
    # Lengths keep parts apart: ("ab", "c") and ("a", "bc") are different ids.
    text = "".join(f"{len(str(part))}:{part}" for part in parts)
    # Zero is OpenTelemetry's invalid id.
    return int.from_bytes(blake2b(text.encode(), digest_size=num_bytes).digest(), "big") or 1


def marker_ids(run_id: str, attempt: int) -> Ids:
    """Return the ids of the run marker of an attempt (from 1), a trace of its own."""
    return Ids(_hash(16, "run", run_id, attempt), _hash(8, "run", run_id, attempt))


def queue_ids(run_id: str, attempt: int) -> Ids:
    """Return the ids of the span of an attempt's wait in the queue, in its marker's trace."""
    return Ids(marker_ids(run_id, attempt).trace_id, _hash(8, "queue", run_id, attempt))


def end_ids(run_id: str, attempt: int, rank: int, wall_ns: int) -> Ids:
    """Return the ids of the span that closes an attempt at ``wall_ns``, in its marker's trace."""
    span_id = _hash(8, "end", run_id, attempt, rank, wall_ns)
    return Ids(marker_ids(run_id, attempt).trace_id, span_id)


def checkpoint_ids(run_id: str, name: str, part: str = "") -> Ids:
    """Return the ids of the root of a save's trace, the same on every rank, or of a part of it.

    Args:
        run_id: The run.
        name: The checkpoint.
        part: A rank and what it did, such as ``0/stall``.
    """
    parts = (run_id, name)
    return Ids(_hash(16, "checkpoint", *parts), _hash(8, "checkpoint", *parts, part))


def period_ids(run_id: str, attempt: int, period: int) -> Ids:
    """Return the ids of the root of a trace period, the same on every rank.

    Args:
        run_id: The run.
        attempt: Number of the launch, from 1.
        period: Unix time divided by the length of a period, rounded down.
    """
    parts = (run_id, attempt, period)
    return Ids(_hash(16, "period", *parts), _hash(8, "period", *parts))


def rank_ids(run_id: str, attempt: int, period: int, rank: int) -> Ids:
    """Return the ids of one rank's span in a trace period."""
    trace_id = period_ids(run_id, attempt, period).trace_id
    return Ids(trace_id, _hash(8, "rank", run_id, attempt, period, rank))


def iteration_ids(trace_id: int, rank: int, iteration: int, part: str = "") -> Ids:
    """Return the ids of an iteration's span in a trace, or of one ``part`` (a phase) of it."""
    return Ids(trace_id, _hash(8, "iteration", trace_id, rank, iteration, part))


def should_trace(period_trace_id: int, rank: int, world_size: int) -> bool:
    """Return whether a rank's spans belong into a period's trace.

    Above 256 ranks a trace would outgrow what back-ends take, so a hash picks about 64 of them,
    others in every period.
    """
    if world_size <= MAX_RANKS:
        return True
    return _hash(8, period_trace_id, rank) * world_size < _NUM_CHOSEN << 64
