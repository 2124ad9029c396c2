"""What the beginnings of passes over the data cost: the waits for their first batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from costlens.diagnose.data_supply import steady_wait_s
from costlens.diagnose.measures import MIN_SHARE

if TYPE_CHECKING:
    from costlens.diagnose.evidence import Evidence

__all__ = ["PassLoss", "find_pass_loss"]

# One pass tells of itself, not of the next.
_LEAST_PASSES = 2


@dataclass(frozen=True, slots=True)
class PassLoss:
    """What the beginnings of passes cost.

    Args:
        num: Passes that began.
        wait_s: Mean exposed wait for the first batch of one, in seconds.
        saved_share: Share of the paid time that all of these waits take beyond those for any other
            batch.
        has_workers: Whether workers make the batches.
        is_persistent: Whether they live on from pass to pass; None where that is not known.
    """

    num: int
    wait_s: float
    saved_share: float
    has_workers: bool
    is_persistent: bool | None


def find_pass_loss(evidence: Evidence) -> PassLoss | None:
    """Return what the beginnings of passes cost; None where that is little, or not known.

    Args:
        evidence: The evidence.
    """
    loading, whole = evidence.now.loading, evidence.whole
    if loading is None or whole.num_iterations <= 0:
        return None
    # The first pass is start-up, and not among the waits.
    first_s, num = loading.first_wait_s, loading.num_passes - 1
    if num < _LEAST_PASSES:
        return None
    # The CPU time of workers does not tell what the first batch takes: starting is most of it.
    lost_s = first_s - num * steady_wait_s(whole) / whole.num_iterations
    if lost_s < MIN_SHARE * whole.iteration_s:
        return None
    saved = lost_s / whole.iteration_s * evidence.share(evidence.iteration_s)
    return PassLoss(
        num, first_s / num, saved, bool(loading.num_workers), loading.persistent_workers
    )
