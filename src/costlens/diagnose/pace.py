"""Which rank keeps the others waiting: what each needs by itself, before all meet in a collective.

All ranks of data-parallel training take the same time per iteration, whoever is slow: the fast ones
wait in the collective, on a device at full utilization, for its kernels spin. What a rank needs by
itself, its *own time*, is measured

- on the CPU as what comes before the backward pass, in whose collectives ranks wait, and as many
  times the forward pass as the backward pass takes on the rank that waits least;
- on devices by the activity of their tensor units, which a spinning kernel does not use, and by the
  time in which no kernel runs, which a spinning device does not have;
- without that by clocks, in inverse proportion to which kernels take their time.

Exposed waits for data, which no other rank makes, are its own as well, unless ranks are late in
turn: then they are told as what starves all (``starvation``).
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from costlens.diagnose.measures import is_on_device, reach

if TYPE_CHECKING:
    from costlens.diagnose.evidence import Evidence

__all__ = ["BUSY_SM", "MIN_LAG", "Pace", "find_activity", "find_pace"]

MIN_LAG = 0.07
"""Least share by which a rank must be slower than the middle one: equal machines differ by 2 to
3 %, and the slowest of many by about twice that."""

BUSY_SM = 0.85
"""Share of its multiprocessors that a device keeps active with kernels that fill it: NVIDIA calls
0.8 and above effective use (DCGM, field 1002)."""

# Who is this near to the slowest is slow, too.
_ALSO_SLOW = 0.5

_BEFORE = ("transfer", "forward", "compute", "optimizer", "callbacks", "logging")
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


def find_pace(ranks: Sequence[Evidence], *, counts_waits: bool = True) -> Pace | None:
    """Return how fast the ranks are; None where nothing tells.

    Args:
        ranks: Evidence about the ranks of one attempt over about the same time.
        counts_waits: Whether waits for data are a rank's own.
    """
    if any(is_on_device(own) for own in ranks):
        measured = _by_tensor_units(ranks) or _by_clocks(ranks)
    else:
        measured = _by_phases(ranks)
    if measured is None:
        return None
    own_s, signal = measured
    if counts_waits:
        own_s = {e.now.rank.rank: own_s[e.now.rank.rank] + e.time_s["data_wait"] for e in ranks}
    median_s = statistics.median_low(sorted(own_s.values()))
    slowest_s = max(own_s.values())
    limit_s = max(MIN_LAG * median_s, _ALSO_SLOW * (slowest_s - median_s))
    slow = [
        rank
        for rank, seconds in sorted(own_s.items(), key=lambda item: (-item[1], item[0]))
        if seconds - median_s > limit_s
    ]
    # Without them the next slowest sets the pace.
    next_s = max(seconds for rank, seconds in own_s.items() if rank not in slow)
    return Pace(own_s, median_s, tuple(slow), slowest_s - next_s, signal)


def _by_phases(ranks: Sequence[Evidence]) -> tuple[dict[int, float], str] | None:
    before = {own.now.rank.rank: sum(own.time_s[name] for name in _BEFORE) for own in ranks}
    forward = {own.now.rank.rank: own.time_s["forward"] + own.time_s["compute"] for own in ranks}
    if min(before.values()) <= 0 or min(forward.values()) <= 0:
        return None
    # A backward pass takes some times the forward one, and whoever waits least shows how many.
    times = min(own.time_s["backward"] / forward[own.now.rank.rank] for own in ranks)
    own_s = {rank: before_s + times * forward[rank] for rank, before_s in before.items()}
    return own_s, "time before the collectives of the backward pass"


def _by_tensor_units(ranks: Sequence[Evidence]) -> tuple[dict[int, float], str] | None:
    """Return own times by ``own = k × tensor time + idle`` of the same iterations.

    ``k`` is the same for equal work on equal devices, and the slowest rank does not spin: all of
    its time is its own. So ``k`` is the least of ``(iterations - idle) / tensor time``.
    """
    measured: dict[int, tuple[float, float, float]] = {}
    for own in ranks:
        activity, idle, moving_s = find_activity(own, "tensor"), own.idle_s, _moving_s(own)
        if not activity or idle is None or moving_s <= 0:
            return None
        # Tensor units rest outside of iterations and evaluation, and the mean is over all time.
        active_s = activity * own.total_s
        active_s *= own.iteration_s / (own.iteration_s + own.time_s["validation"])
        measured[own.now.rank.rank] = (active_s, idle, moving_s)
    scale = min((moving_s - idle) / active_s for active_s, idle, moving_s in measured.values())
    own_s = {rank: scale * active_s + idle for rank, (active_s, idle, _) in measured.items()}
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
        own.now.rank.rank: _moving_s(own) * slowest / clocks[own.now.rank.rank] for own in ranks
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
    for now, before in own.gpus:
        if unit not in now.activity_busy_s:
            return None
        known_s += now.activity_s - (0.0 if before is None else before.activity_s)
        busy_s += now.activity_busy_s[unit]
        busy_s -= 0.0 if before is None else before.activity_busy_s.get(unit, 0.0)
    return busy_s / known_s if known_s >= _LEAST_SECONDS else None
