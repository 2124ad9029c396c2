"""What rules measure evidence with: how far sums rose, what is rare in it, how idle a device was.

Pure. None means that the record does not know; nobody may take that for 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from costlens.core.clock import NS_PER_S
from costlens.core.durations import Sketch

if TYPE_CHECKING:
    from costlens.core.device_records import GpuPart
    from costlens.diagnose.evidence import Evidence

__all__ = [
    "MIN_SHARE",
    "is_event",
    "is_on_device",
    "measure_idle_s",
    "percent",
    "reach",
    "received_bytes",
    "rise",
    "rise_of",
]

MIN_SHARE = 0.05
"""Least share of the training time that is worth a finding: the speed of one and the same job
differs by about 2 % from hour to hour, and on what is near that nobody can act."""

# What the longest few iterations explain is an event (a stopped process, a slow save between two
# batches) and not how the loop runs: no more of them than this share, and at least so much of it.
_RARE_SHARE = 0.005
_RARE_LEAST = 1
_EXPLAINED = 0.7

# A mean over less than three samples, which are 2 s apart, tells nothing of a device.
_LEAST_SAMPLED_S = 5.0

# The host holds the training up in them, so its device is idle.
_STANDING = ("startup", "restore", "checkpoint", "idle", "shutdown", "data_wait")


def reach(part: object, *names: str) -> float | None:
    """Return a number of a record by the names that lead to it; None where one is absent.

    Args:
        part: A record, or a part of one.
        *names: Fields, from the outside in.
    """
    for name in names:
        if part is None:
            return None
        part = getattr(part, name)
    return None if part is None else float(part)  # type: ignore[arg-type]


def rise(evidence: Evidence, *names: str) -> float | None:
    """Return by how much a sum of the record rose in the evidence; None where it is not known.

    Args:
        evidence: The evidence.
        *names: Fields that lead to it; one that the earlier record does not have began later.
    """
    now = reach(evidence.now, *names)
    if now is None or evidence.before is None:
        return now
    risen = now - (reach(evidence.before, *names) or 0.0)
    return risen if risen > 0 else 0.0


def is_on_device(evidence: Evidence) -> bool:
    """Return whether a device is priced, so that the host's phases in iterations tell nothing."""
    return evidence.now.host_ns is not None


def is_event(evidence: Evidence, seconds: float) -> bool:
    """Return whether a few long iterations explain some time in iterations.

    Args:
        evidence: The evidence.
        seconds: The time.
    """
    now = evidence.now.iteration_time.sketch
    before = {} if evidence.before is None else evidence.before.iteration_time.sketch
    bins = {key: count - before.get(key, 0) for key, count in now.items()}
    num_iterations = sum(bins.values())
    if num_iterations <= 0:
        return False
    sketch = Sketch(bins={key: n for key, n in bins.items() if n > 0}, count=num_iterations)
    median_ns = sketch.quantile_ns(0.5) or 0.0
    left = max(_RARE_LEAST, int(_RARE_SHARE * num_iterations))
    rare_ns = 0.0
    for key in sorted(sketch.bins, reverse=True):
        num_taken = min(left, sketch.bins[key])
        alone = Sketch(bins={key: 1}, count=1)
        rare_ns += num_taken * max(0.0, (alone.quantile_ns(0.5) or 0.0) - median_ns)
        left -= num_taken
        if left <= 0:
            break
    return rare_ns / NS_PER_S >= _EXPLAINED * seconds


def rise_of(pair: tuple[GpuPart, GpuPart | None], *names: str) -> float | None:
    """Return by how much a sum of one device rose; None where it is not known.

    Args:
        pair: The device, now and before.
        *names: Fields of its part.
    """
    now, before = reach(pair[0], *names), reach(pair[1], *names)
    return None if now is None else max(0.0, now - (before or 0.0))


def received_bytes(evidence: Evidence) -> int:
    """Return what the devices received over PCIe; 0 where nobody counts it."""
    now = sum(part.io_bytes.get("pcie_receive", 0) for part in evidence.now.gpus)
    before = () if evidence.before is None else evidence.before.gpus
    return max(0, now - sum(part.io_bytes.get("pcie_receive", 0) for part in before))


def measure_idle_s(evidence: Evidence) -> float | None:
    """Return how long the devices did nothing in iterations, beside exposed waits for data.

    From the sampled utilization (in which any running kernel is work), less the time in which the
    training stood still. None where it was not sampled, as for MIG devices.
    """
    busy_s = known_s = 0.0
    for pair in evidence.gpus:
        busy_s += rise_of(pair, "busy_s") or 0.0
        known_s += rise_of(pair, "utilization_s") or 0.0
    if known_s < _LEAST_SAMPLED_S:
        return None
    idle_all_s = max(0.0, 1 - busy_s / known_s) * evidence.total_s
    standing_s = sum(evidence.time_s[name] for name in _STANDING)
    moving_s = max(0.0, evidence.iteration_s - evidence.time_s["data_wait"])
    evaluated_s = evidence.time_s["validation"]
    if moving_s <= 0:
        return 0.0
    # Nobody tells the two apart: evaluation is taken to idle as the iterations do.
    share = moving_s / (moving_s + evaluated_s)
    return min(max(0.0, idle_all_s - standing_s) * share, moving_s)


def percent(share: float) -> str:
    """Return a share (0 to 1) in percent, with a decimal where it is small."""
    return f"{share:.0%}" if share >= 0.1 else f"{share:.1%}"
