"""What loader workers catch up while the training stands still, in a save or an evaluation.

Where they set the pace, a pause costs less than it takes: they go on until their queue is full, and
the loop goes through that without a wait. Fewer pauses bring back the waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from costlens.diagnose.data_supply import find_supply, steady_wait_s

if TYPE_CHECKING:
    from costlens.diagnose.evidence import Evidence

__all__ = ["caught_up_s"]

# As few waits as that show that the workers are hardly fast enough.
_LEAST_WAIT_SHARE = 0.01

# Batches that torch lets each worker make ahead, where nobody says.
_PREFETCH_FACTOR = 2


def caught_up_s(whole: Evidence, stall_s: float, num: float) -> float:
    """Return for how long the loop would wait for its data beyond now, without some pauses.

    A batch takes the workers what they need of CPUs and reads; all batches take them no less than
    that, and the loop no less than its iterations without waits.

    Args:
        whole: The evidence about all of the attempt.
        stall_s: What the pauses took, in seconds.
        num: How many there were, >= 1.
    """
    supply, loading = find_supply(whole, _LEAST_WAIT_SHARE), whole.now.loading
    if supply is None or not supply.num_workers or supply.load_s is None:
        return 0.0
    known_s = (supply.cpu_s or 0.0) + (supply.read_s or 0.0)
    period_s = known_s / supply.num_workers
    if supply.spare_cpus:
        period_s = max(period_s, (supply.cpu_s or 0.0) / supply.spare_cpus)
    moving_s = whole.iteration_s - steady_wait_s(whole)
    wait_s = whole.num_iterations * period_s - moving_s - steady_wait_s(whole)
    ahead = (loading and loading.prefetch_factor) or _PREFETCH_FACTOR
    # Until the queue is full: each worker has so many batches to make.
    full_s = ahead * supply.num_workers * period_s
    return max(0.0, min(wait_s, num * min(stall_s / num, full_s)))
