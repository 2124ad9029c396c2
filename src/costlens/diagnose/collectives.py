"""For how long ranks stand in the all-reduce of their gradients, where DDP has timed it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from costlens.diagnose.measures import reach, rise

if TYPE_CHECKING:
    from costlens.diagnose.evidence import Evidence

__all__ = ["LEAST_REDUCING", "late_s", "least_reduce_s", "reduced_s", "usual_reduce_s"]

LEAST_REDUCING = 0.1
"""Least share of iterations in the all-reduce that something is to be done about: that of the last
bucket begins with the last gradient, so that nothing hides it, and ranks that are alike still wait
for one another for some per cent."""

# DDP times one pass in a hundred; one alone may be any.
_LEAST_PASSES = 2


def reduced_s(evidence: Evidence) -> float | None:
    """Return the mean seconds an iteration that a rank waits in the all-reduce; None untimed.

    From its last gradient on: what computing hides is not in it, waits for other ranks are.

    Args:
        evidence: The evidence about the rank.
    """
    num = rise(evidence, "all_reduce", "num_sampled")
    if num is None or num < _LEAST_PASSES:
        return None
    return (rise(evidence, "all_reduce", "exposed_s") or 0.0) / num


def usual_reduce_s(ranks: Sequence[Evidence]) -> float | None:
    """Return what the all-reduce itself takes of an iteration; None where a rank is not timed.

    The rank that waits least comes last to nearly every one, and waits for nobody.

    Args:
        ranks: Evidence about the ranks of one attempt over about the same time.
    """
    times = _list_times_s(ranks)
    return min(times) if times else None


def least_reduce_s(ranks: Sequence[Evidence]) -> float | None:
    """Return the same of ranks that come last in turn: of no less than the shortest one timed.

    Args:
        ranks: Evidence about the ranks of one attempt over about the same time.
    """
    if not _list_times_s(ranks):
        return None
    return min(reach(own.now, "all_reduce", "least_exposed_s") or 0.0 for own in ranks)


def late_s(ranks: Sequence[Evidence]) -> float | None:
    """Return the mean seconds an iteration that ranks wait for later ones; None where untimed.

    Args:
        ranks: Evidence about the ranks of one attempt over about the same time.
    """
    times, least_s = _list_times_s(ranks), least_reduce_s(ranks)
    return max(0.0, sum(times) / len(times) - least_s) if least_s is not None else None


def _list_times_s(ranks: Sequence[Evidence]) -> list[float]:
    """Return what each rank waits in the all-reduce; nothing where one of them is not timed."""
    times = []
    for own in ranks:
        seconds = reduced_s(own)
        if seconds is None:
            return []
        times.append(seconds)
    return times
