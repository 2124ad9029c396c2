"""Which rank keeps the others waiting: what each needs by itself, before all meet in a collective.

All ranks of data-parallel training take the same time per iteration, whoever is slow: the fast ones
wait in the collective, on a device at full utilization, for its kernels spin. What a rank needs by
itself, its *own time*, is measured

- on the CPU as what comes before the backward pass, in whose collectives ranks wait, and as much of
  the backward pass as the rank's forward pass is of the slowest rank's;
- on devices by the activity of their tensor units, which a spinning kernel does not use, and by the
  time in which no kernel runs, which a spinning device does not have;
- without that by clocks, in inverse proportion to which kernels take their time;
- and always by exposed waits for data, which no other rank makes.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from costlens.diagnose.measures import idle_s, is_on_device, pair_gpus, reach

if TYPE_CHECKING:
    from costlens.diagnose.evidence import Evidence

__all__ = ["MIN_LAG", "Pace", "find_activity", "find_pace"]

MIN_LAG = 0.07
"""Least share by which a rank must be slower than the middle one: equal machines differ by 2 to
3 %, and the slowest of many by about twice that."""

# Who is this near to the slowest is slow, too.
_ALSO_SLOW = 0.5

_BEFORE = ("data_wait", "transfer", "forward", "compute", "optimizer", "callbacks", "logging")
_LEAST_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the ranks of a job are.

    Args:
        own_s: What each rank needs for the iterations by itself, in seconds, by rank.
        median_s: That of the middle rank.
        slow: Ranks that are slower than it by more than ``MIN_LAG``, the slowest first.
        lost_s: What each rank loses to the slowest, in seconds of the evidence.
        signal: What it was measured by, a phrase.
    """

    own_s: Mapping[int, float]
    median_s: float
    slow: tuple[int, ...]
    lost_s: float
    signal: str


def find_pace(ranks: Sequence[Evidence]) -> Pace | None:
    """Return how fast the ranks are; None where nothing tells.

    Args:
        ranks: Evidence about the ranks of one attempt over about the same time.
    """
    if any(is_on_device(own) for own in ranks):
        measured = _by_tensor_units(ranks) or _by_clocks(ranks)
    else:
        measured = _by_phases(ranks)
    if measured is None:
        return None
    own_s, signal = measured
    median_s = statistics.median_low(sorted(own_s.values()))
    slowest_s = max(own_s.values())
    lag_s = slowest_s - median_s
    slow = [
        rank
        for rank, seconds in sorted(own_s.items(), key=lambda item: (-item[1], item[0]))
        if seconds - median_s > max(MIN_LAG * median_s, _ALSO_SLOW * lag_s)
    ]
    return Pace(own_s, median_s, tuple(slow), lag_s, signal)


def _by_phases(ranks: Sequence[Evidence]) -> tuple[dict[int, float], str] | None:
    before = {own.now.rank.rank: sum(own.time_s[name] for name in _BEFORE) for own in ranks}
    if min(before.values()) <= 0:
        return None
    slowest = max(ranks, key=lambda own: before[own.now.rank.rank])
    # The slowest waits for nobody, so its backward pass is its own.
    pure_s = slowest.time_s["backward"]
    forward_s = slowest.time_s["forward"] + slowest.time_s["compute"]
    own_s = {}
    for own in ranks:
        rank, forward = own.now.rank.rank, own.time_s["forward"] + own.time_s["compute"]
        share = min(1.0, forward / forward_s) if forward_s > 0 else 1.0
        own_s[rank] = before[rank] + min(own.time_s["backward"], pure_s * share)
    return own_s, "time before the collectives of the backward pass"


def _by_tensor_units(ranks: Sequence[Evidence]) -> tuple[dict[int, float], str] | None:
    """Return own times by ``own = k × activity + idle``, all as shares of the same iterations.

    ``k`` is the same for equal work on equal devices, and the slowest rank does not spin: its share
    is 1. So ``k`` is the least of ``(1 - idle) / activity`` over the ranks.
    """
    shares: dict[int, tuple[float, float]] = {}
    for own in ranks:
        activity, idle, moving_s = find_activity(own, "tensor"), idle_s(own), _moving_s(own)
        if not activity or idle is None or moving_s <= 0:
            return None
        shares[own.now.rank.rank] = (activity, idle / moving_s)
    scale = min((1 - idle) / activity for activity, idle in shares.values())
    own_s = {}
    for own in ranks:
        activity, idle = shares[own.now.rank.rank]
        own_s[own.now.rank.rank] = (
            _moving_s(own) * (scale * activity + idle) + own.time_s["data_wait"]
        )
    return own_s, "activity of the tensor units"


def _by_clocks(ranks: Sequence[Evidence]) -> tuple[dict[int, float], str] | None:
    clocks: dict[int, float] = {}
    for own in ranks:
        clock = reach(own.now.gpus[0], "sm_clock_hertz") if own.now.gpus else None
        if not clock:
            return None
        clocks[own.now.rank.rank] = clock
    slowest = min(clocks.values())
    own_s = {
        own.now.rank.rank: _moving_s(own) * slowest / clocks[own.now.rank.rank]
        + own.time_s["data_wait"]
        for own in ranks
    }
    return own_s, "clocks of the devices"


def _moving_s(own: Evidence) -> float:
    return own.iteration_s - own.time_s["data_wait"]


def find_activity(own: Evidence, unit: str) -> float | None:
    """Return the mean activity (0 to 1) of a unit of a rank's devices; None where not sampled.

    Args:
        own: Evidence about the rank.
        unit: ``sm``, ``tensor`` or ``dram``.
    """
    busy_s = known_s = 0.0
    for now, before in pair_gpus(own):
        if unit not in now.activity_busy_s:
            return None
        known_s += now.activity_s - (0.0 if before is None else before.activity_s)
        busy_s += now.activity_busy_s[unit]
        busy_s -= 0.0 if before is None else before.activity_busy_s.get(unit, 0.0)
    return busy_s / known_s if known_s >= _LEAST_SECONDS else None
