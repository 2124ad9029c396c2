"""What the beginnings of passes over the data cost: the waits for their first batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from costlens.diagnose.data_supply import steady_wait_s
from costlens.diagnose.measures import MIN_SHARE, rise

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
        lost_s: What all of these waits take beyond those for any other batch, in seconds.
        has_workers: Whether workers make the batches.
        is_persistent: Whether they live on from pass to pass; None where that is not known.
    """

    num: int
    wait_s: float
    lost_s: float
    has_workers: bool
    is_persistent: bool | None


def find_pass_loss(evidence: Evidence) -> PassLoss | None:
    """Return what the beginnings of passes cost; None where that is little, or not known.

    Args:
        evidence: The evidence.
    """
    loading = evidence.now.loading
    first_s = rise(evidence, "loading", "first_wait_s")
    if loading is None or not first_s or evidence.num_iterations <= 0:
        return None
    # Of a whole attempt the first pass is start-up, and not among the waits.
    begun = rise(evidence, "loading", "num_passes") or 0.0
    num = int(begun) - (evidence.before is None or evidence.before.loading is None)
    if num < _LEAST_PASSES:
        return None
    # The CPU time of workers does not tell what the first batch takes: starting is most of it.
    lost_s = first_s - num * steady_wait_s(evidence) / evidence.num_iterations
    if lost_s < MIN_SHARE * evidence.iteration_s:
        return None
    return PassLoss(
        num, first_s / num, lost_s, bool(loading.num_workers), loading.persistent_workers
    )
