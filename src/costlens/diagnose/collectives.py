"""For how long ranks stand in the all-reduce of their gradients, where DDP has timed it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from costlens.diagnose.measures import reach, rise

if TYPE_CHECKING:
    from costlens.diagnose.evidence import Evidence

__all__ = ["late_s", "least_reduce_s", "reduced_s", "usual_reduce_s"]

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
    times = [reduced_s(own) for own in ranks]
    known = [seconds for seconds in times if seconds is not None]
    return min(known) if known and len(known) == len(times) else None


def least_reduce_s(ranks: Sequence[Evidence]) -> float | None:
    """Return the same of ranks that come last in turn: of no less than the shortest one timed.

    Args:
        ranks: Evidence about the ranks of one attempt over about the same time.
    """
    if usual_reduce_s(ranks) is None:
        return None
    return min(reach(own.now, "all_reduce", "least_exposed_s") or 0.0 for own in ranks)


def late_s(ranks: Sequence[Evidence]) -> float | None:
    """Return the mean seconds an iteration that ranks wait for later ones; None where untimed.

    Args:
        ranks: Evidence about the ranks of one attempt over about the same time.
    """
    least_s = least_reduce_s(ranks)
    if least_s is None:
        return None
    waits = [reduced_s(own) or 0.0 for own in ranks]
    return max(0.0, sum(waits) / len(waits) - least_s)
