"""What a device stands still for that no phase of the host explains: the launching of its kernels.

The host of a device queues kernels and runs ahead. Where it waits for a result (``Tensor.item()``)
it stops running ahead, and where kernels are short it cannot: both leave the device idle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from costlens.diagnose.measures import idle_s, is_on_device, rise

if TYPE_CHECKING:
    from costlens.diagnose.evidence import Evidence

__all__ = ["MIN_SYNC_SHARE", "Launching", "find_launching"]

MIN_SYNC_SHARE = 0.1
"""Least share of looks that found the host waiting for a result: below it is chance, and logging
every now and then."""

# Below a tenth of the time, idling is the noise of a sampled utilization.
_MIN_IDLE_SHARE = 0.1

_LEAST_LOOKS = 20

# In these phases the host does something else than launching kernels.
_OTHERWISE = ("transfer", "callbacks", "logging", "communication", "other")


@dataclass(frozen=True, slots=True)
class Launching:
    """A device that idles while its host launches; seconds in iterations, without exposed waits.

    Args:
        moving_s: All of that time.
        idle_s: In which no kernel ran, and nothing else of the host explains it.
        sync_share: Share (0 to 1) of looks that found the host waiting for a result; None unknown.
    """

    moving_s: float
    idle_s: float
    sync_share: float | None

    @property
    def busy_s(self) -> float:
        """Return the time in which kernels ran."""
        return self.moving_s - self.idle_s


def find_launching(evidence: Evidence) -> Launching | None:
    """Return how the device idles; None where it hardly does, has none, or nobody samples it.

    Args:
        evidence: The evidence.
    """
    if not is_on_device(evidence):
        return None
    idle = idle_s(evidence)
    moving_s = evidence.iteration_s - evidence.time_s["data_wait"]
    if idle is None or moving_s <= 0:
        return None
    otherwise_s = sum(evidence.host_s[name] for name in _OTHERWISE)
    otherwise_s += rise(evidence, "compiler", "compile_s") or 0.0
    unexplained_s = idle - min(idle, otherwise_s)
    if unexplained_s < _MIN_IDLE_SHARE * moving_s:
        return None
    looks, in_sync = (rise(evidence, "looks", name) for name in ("num_iterating", "in_sync"))
    is_seen = looks is not None and looks >= _LEAST_LOOKS
    return Launching(
        moving_s, unexplained_s, (in_sync or 0.0) / looks if looks and is_seen else None
    )
