"""What holds some iterations up and not the others: compilations, and memory that runs out.

Whatever happens in every iteration makes them all longer; these make a few much longer, so the
durations tell what they cost, and none of it is idling that anything else could explain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from costlens.core.clock import NS_PER_S
from costlens.core.durations import Sketch
from costlens.diagnose.measures import rise

if TYPE_CHECKING:
    from costlens.diagnose.evidence import Evidence

__all__ = ["compile_s", "measure_steady_idle_s", "retry_s"]


def compile_s(evidence: Evidence) -> float:
    """Return the seconds of compilations after start-up in it; 0 where nobody compiles."""
    part = evidence.now.compiler
    if part is None:
        return 0.0
    seconds = rise(evidence, "compiler", "compile_s") or 0.0
    return max(0.0, seconds - (part.startup_s if evidence.before is None else 0.0))


def retry_s(evidence: Evidence) -> float:
    """Return what the retries of the device's allocator took, in seconds; 0 without any.

    The iterations that hold one are the longest: their time less that of as many ordinary ones, by
    which compilations, and waits for the first batches of passes, are left out.
    """
    part = evidence.now.allocator
    if part is None or not part.num_alloc_retries:
        return 0.0
    retries = rise(evidence, "allocator", "num_alloc_retries")
    if not retries:
        return 0.0
    now = evidence.now.iteration_time.sketch
    before = {} if evidence.before is None else evidence.before.iteration_time.sketch
    bins = {key: num for key, count in now.items() if (num := count - before.get(key, 0)) > 0}
    num_iterations = sum(bins.values())
    if num_iterations <= 0:
        return 0.0
    num_held = min(num_iterations, int(retries))
    sketch = Sketch(bins=bins, count=num_iterations)
    # The middle one of the others; where all hold one, the shortest is the best there is.
    ordinary_ns = sketch.quantile_ns((num_iterations - num_held) / num_iterations / 2) or 0.0
    left, held_ns = num_held, 0.0
    for key in sorted(bins, reverse=True):
        num = min(left, bins[key])
        held_ns += num * ((Sketch(bins={key: 1}, count=1).quantile_ns(0.5) or 0.0) - ordinary_ns)
        left -= num
        if left <= 0:
            break
    turns_s = rise(evidence, "loading", "first_wait_s") or 0.0
    longer_s = max(0.0, held_ns / NS_PER_S - compile_s(evidence) - turns_s)
    # Long iterations may also have waited for their batches: then the device's idling is all that
    # surely was the retries'.
    late_s = max(0.0, evidence.time_s["data_wait"] - turns_s)
    return max(longer_s - late_s, min(longer_s, evidence.idle_s or 0.0))


def measure_steady_idle_s(evidence: Evidence) -> float | None:
    """Return for how long devices idle in every iteration, without exposed waits; None unknown.

    What only some iterations hold (compilations, retries of the allocator) is not in it.
    """
    idle = evidence.idle_s
    return None if idle is None else max(0.0, idle - compile_s(evidence) - retry_s(evidence))
