"""What loader workers catch up while the training stands still, in a save or an evaluation.

Where they set the pace, a pause costs less than it takes: they go on until their queue is full, and
the loop goes through that without a wait. Fewer pauses bring back the waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from costlens.diagnose.data_supply import count_worker_cpus, steady_wait_s
from costlens.diagnose.measures import reach

if TYPE_CHECKING:
    from costlens.diagnose.evidence import Evidence

__all__ = ["caught_up_s"]

# As few waits as that show that the workers are hardly fast enough.
_LEAST_WAIT_SHARE = 0.01

# Batches that torch lets each worker make ahead, where nobody says.
_PREFETCH_FACTOR = 2


def caught_up_s(whole: Evidence, stall_s: float, num: float) -> float:
    """Return for how long the loop would wait for its data beyond now, without some pauses.

    All batches take the workers no less than what they need of CPUs and reads; beyond the
    iterations as they are, so much was made in the pauses.

    Args:
        whole: The evidence about all of the attempt.
        stall_s: What the pauses took, in seconds.
        num: How many there were, >= 1.
    """
    loading = whole.now.loading
    if loading is None or not loading.num_workers or whole.num_iterations <= 0:
        return 0.0
    if steady_wait_s(whole) < _LEAST_WAIT_SHARE * whole.iteration_s:
        return 0.0
    cpu_s = reach(whole.now, "host", "loader", "cpu_s") or 0.0
    read_s = sum(reach(whole.now, "host", "reads", name) or 0.0 for name in ("read_s", "open_s"))
    cpus = count_worker_cpus(whole) or loading.num_workers
    working_s = max((cpu_s + read_s) / loading.num_workers, cpu_s / cpus)
    ahead = loading.prefetch_factor or _PREFETCH_FACTOR
    # Until the queue is full: each worker has so many batches to make.
    full_s = ahead * loading.num_workers * working_s / whole.num_iterations
    return max(0.0, min(working_s - whole.iteration_s, num * min(stall_s / num, full_s)))
