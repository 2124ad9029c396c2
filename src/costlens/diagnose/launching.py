"""What a device stands still for in every iteration: how its host launches kernels.

The host of a device queues kernels and runs ahead. Where it waits for a result (``Tensor.item()``)
it stops running ahead, and where kernels are short it cannot: both leave the device idle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from costlens.diagnose.copies import copied_s
from costlens.diagnose.measures import is_on_device, rise

if TYPE_CHECKING:
    from costlens.diagnose.evidence import Evidence

__all__ = [
    "MIN_IDLE_SHARE",
    "MIN_SYNC_SHARE",
    "Launching",
    "behind_queue_s",
    "find_launching",
]

MIN_IDLE_SHARE = 0.08
"""Least share of the time for idling to count: below it is the noise of a sampled utilization."""

MIN_SYNC_SHARE = 0.1
"""Least share of looks that found the host waiting for a result: below it is chance, and logging
every now and then."""

_LEAST_LOOKS = 20

# In these phases the host does something else than launching kernels.
_OWN_WORK = ("callbacks", "logging", "other")
_OTHERWISE = ("transfer", "communication", *_OWN_WORK)


@dataclass(frozen=True, slots=True)
class Launching:
    """A device that idles in every iteration; seconds in iterations, without exposed waits.

    Args:
        moving_s: All of that time.
        idle_s: In which no kernel ran.
        otherwise_s: What the host did then, at most, beside launching kernels.
        sync_share: Share (0 to 1) of looks that found the host waiting for a result; None unknown.
    """

    moving_s: float
    idle_s: float
    otherwise_s: float
    sync_share: float | None

    @property
    def busy_s(self) -> float:
        """Return the time in which kernels ran."""
        return self.moving_s - self.idle_s

    @property
    def unexplained_s(self) -> float:
        """Return the idling that nothing but launching explains."""
        return max(0.0, self.idle_s - self.otherwise_s)


def behind_queue_s(evidence: Evidence) -> float:
    """Return what the host does beside launching kernels and waiting for results, in seconds.

    A loop that makes its batches itself does so as well.

    Args:
        evidence: The evidence.
    """
    loading = evidence.now.loading
    makes_batches = loading is not None and loading.num_workers == 0
    names = (*_OWN_WORK, "data_wait") if makes_batches else _OWN_WORK
    return sum(evidence.host_s[name] for name in names)


def find_launching(evidence: Evidence) -> Launching | None:
    """Return how the device idles; None where it hardly does, has none, or nobody samples it.

    Args:
        evidence: The evidence.
    """
    if not is_on_device(evidence):
        return None
    idle = evidence.steady_idle_s
    moving_s = evidence.iteration_s - evidence.time_s["data_wait"]
    if idle is not None:
        idle = max(0.0, idle - copied_s(evidence))
    if idle is None or moving_s <= 0 or idle < MIN_IDLE_SHARE * moving_s:
        return None
    otherwise_s = min(idle, sum(evidence.host_s[name] for name in _OTHERWISE))
    looks, in_sync = (rise(evidence, "looks", name) for name in ("num_iterating", "in_sync"))
    is_seen = looks is not None and looks >= _LEAST_LOOKS
    sync_share = (in_sync or 0.0) / looks if looks and is_seen else None
    return Launching(moving_s, idle, otherwise_s, sync_share)
