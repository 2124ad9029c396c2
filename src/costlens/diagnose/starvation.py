"""What waits for data cost a job of several ranks, which is more than each rank sees of itself.

In every iteration all ranks wait for the batch that comes last: its rank waits for the batch, the
others in the all-reduce, on a device at full utilization. With loaders that are late in turn, each
rank's own exposed waits are only its turns; of loops that make their batches themselves, all are
late at once, and the rest of the wait for the latest is spent in the all-reduce.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from costlens.core.durations import Sketch
from costlens.diagnose.collectives import late_s
from costlens.diagnose.data_supply import steady_wait_s
from costlens.diagnose.measures import MIN_SHARE, is_on_device
from costlens.diagnose.pace import BUSY_SM, find_activity

if TYPE_CHECKING:
    from costlens.diagnose.evidence import Evidence

__all__ = ["LEAST_OWN_SHARE", "Starvation", "find_starvation"]

LEAST_OWN_SHARE = 0.01
"""Least share of iterations that some rank must wait for its own batches: of 64 ranks in turn that
can be a part of what all lose; below it is chance."""

# Of the iterations, those in which no batch was late: workers that began together bring theirs
# together, and some ranks' turns to be late fall into one iteration.
_UNDISTURBED = 0.02

_NUM_TOLD = 8

# Ranks of which one waits twice as long are not late at once: that one keeps the others waiting.
_ALIKE = 0.5


@dataclass(frozen=True, slots=True)
class Starvation:
    """How late batches hold a job up.

    Args:
        rank: The rank that waits longest for its own batches.
        own_share: Share (0 to 1) of its iterations in which it does.
        share: Share of the iterations of all ranks that late batches cost.
    """

    rank: int
    own_share: float
    share: float


def find_starvation(ranks: Sequence[Evidence]) -> Starvation | None:
    """Return what late batches cost a job; None where that is little, or each rank sees it itself.

    At least one rank waits for its own batch for as long as all wait: the loss is between the
    longest exposed wait of a rank and the sum of all. Loaders know nothing of one another, so
    their waits fall together as often as chance has it: no rank waits in the product of the times
    in which each does not. Nor is it more than the shortest iterations tell, in which no batch was
    late; a host that catches up with its queue has shorter ones, which makes that a bound only.

    Args:
        ranks: Evidence about the ranks of one attempt over about the same time.
    """
    if len(ranks) < 2:
        return None
    if min(own.iteration_s for own in ranks) <= 0:
        return None
    waits = {own.now.rank.rank: steady_wait_s(own) / own.iteration_s for own in ranks}
    rank = max(waits, key=lambda number: (waits[number], -number))
    if waits[rank] < LEAST_OWN_SHARE or sum(waits.values()) < MIN_SHARE:
        return None
    if all(_has_workers(own) for own in ranks):
        share = _share_in_turn(ranks, waits)
    else:
        share = _share_at_once(ranks, waits)
    return None if share < MIN_SHARE else Starvation(rank, waits[rank], share)


def _share_in_turn(ranks: Sequence[Evidence], waits: Mapping[int, float]) -> float:
    longest = max(waits.values())
    share = 1 - math.prod(1 - wait for wait in waits.values())
    bound = _lost_share(ranks)
    if bound > longest:
        return min(share, bound)
    # Late batches come in nearly every iteration, so the shortest had to wait as well, and waits
    # meet more often than by chance.
    measured = [s for s in (_timed_share(ranks, waits), _resting_share(ranks)) if s is not None]
    return max(longest, statistics.mean([share, *(measured or [longest])]))


def _share_at_once(ranks: Sequence[Evidence], waits: Mapping[int, float]) -> float:
    """Return the share of loops that make their own batches; 0 where each rank sees all of it."""
    share = _timed_share(ranks, waits)
    least, longest = min(waits.values()), max(waits.values())
    if share is None or longest < MIN_SHARE or least < _ALIKE * longest:
        return 0.0
    if not all(is_on_device(own) for own in ranks):
        return share
    # Beside devices hosts are late for more than batches: of that, no more than making these takes.
    most = max(own.host_s["data_wait"] / own.iteration_s for own in ranks)
    return min(share, max(most, longest))


def _timed_share(ranks: Sequence[Evidence], waits: Mapping[int, float]) -> float | None:
    """Return what ranks wait for their own batches and for later ranks, as DDP times that."""
    late = late_s(ranks)
    if late is None:
        return None
    iteration_s = sum(own.iteration_s for own in ranks)
    late_share = late * sum(own.num_iterations for own in ranks) / iteration_s
    return sum(waits.values()) / len(waits) + late_share


def _resting_share(ranks: Sequence[Evidence]) -> float | None:
    """Return for which share the multiprocessors rest, as of devices that wait or spin."""
    shares = []
    for own in ranks:
        active = find_activity(own, "sm")
        if active is None:
            return None
        moving_s = own.iteration_s + own.time_s["validation"]
        shares.append(max(0.0, 1 - active * own.total_s / moving_s / BUSY_SM))
    return statistics.mean(shares)


def _has_workers(own: Evidence) -> bool:
    loading = own.now.loading
    return loading is not None and bool(loading.num_workers)


def _lost_share(ranks: Sequence[Evidence]) -> float:
    """Return by which share of the mean the shortest iterations are shorter than it."""
    bins: dict[int, int] = {}
    # All ranks make the same iterations together, so a few tell.
    ranks = ranks[:_NUM_TOLD]
    for own in ranks:
        earlier = {} if own.before is None else own.before.iteration_time.sketch
        for key, count in own.now.iteration_time.sketch.items():
            bins[key] = bins.get(key, 0) + count - earlier.get(key, 0)
    durations = Sketch({key: count for key, count in bins.items() if count > 0})
    durations.count = sum(durations.bins.values())
    shortest_ns = durations.quantile_ns(_UNDISTURBED)
    num, total_s = sum(own.num_iterations for own in ranks), sum(own.iteration_s for own in ranks)
    if shortest_ns is None or num <= 0:
        return 0.0
    return max(0.0, 1 - shortest_ns / 1e9 * num / total_s)
