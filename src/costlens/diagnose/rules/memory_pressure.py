"""memory_pressure: memory of the device or the host is nearly gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costlens.diagnose.finding import Rule, Severity, Verdict
from costlens.diagnose.measures import reach, rise
from costlens.diagnose.retries import is_fragmented, num_retries, tell_retries
from costlens.diagnose.wording import danger, gibibytes

if TYPE_CHECKING:
    from costlens.diagnose.evidence import Evidence

__all__ = ["RULE"]

_NAME = "memory_pressure"

# Below a twentieth of what it may use a process is killed by the next spike.
_MIN_AVAILABLE = 0.05

_FOR_DEVICE = [
    "A smaller batch_size with accumulate_grad_batches to match",
    "Activation checkpointing: torch.utils.checkpoint around the largest blocks",
    "optimizer.zero_grad(set_to_none=True), and no tensors of earlier steps kept alive",
]
_FOR_HOST = [
    "DataLoader with fewer num_workers, or a lower prefetch_factor",
    "Keep large data in memory-mapped files or tensors that workers share",
]


def _judge(evidence: Evidence) -> Verdict:
    """Find a device whose allocator runs out again and again, or a host with nothing to spare.

    How full a device looks says nothing: torch keeps what it has once taken. Saved: see
    ``tell_retries``; on the host nothing, it is a danger.
    """
    kills, host = _judge_host(evidence)
    ooms, retries = rise(evidence, "allocator", "num_ooms") or 0.0, num_retries(evidence)
    severity = Severity.CRITICAL if kills or ooms else Severity.WARNING
    device = [f"{ooms:.0f} allocations on the device failed"] if ooms else []
    if retries and not is_fragmented(evidence):
        peak = reach(evidence.now, "allocator", "peak_allocated_bytes") or 0.0
        device.append(
            f"{retries} times the allocator had to empty its cache; {gibibytes(peak)} were in"
            " tensors at most"
        )
        remedies = [*_FOR_DEVICE, *(_FOR_HOST if host else ())]
        return tell_retries(_NAME, evidence, [*device, *host], remedies, severity)
    if not device and not host:
        return None
    remedies = [*(_FOR_DEVICE if device else ()), *(_FOR_HOST if host else ())]
    return danger(_NAME, severity, [*device, *host], remedies)


def _judge_host(evidence: Evidence) -> tuple[int, list[str]]:
    """Return how many processes were killed for lack of memory, and what there is to say."""
    record, lines = evidence.now, []
    kills = 0 if record.oom is None else record.oom.count - record.oom.start_count
    if kills > 0:
        lines.append(f"{kills} processes of the container were killed for lack of memory")
    for where, limit in (("container", "memory_limit_bytes"), ("node", "memory_bytes")):
        total = reach(record, "host", where, limit)
        left = reach(record, "host", where, "memory_available_bytes")
        if total and left is not None and left < _MIN_AVAILABLE * total:
            lines.append(f"{gibibytes(left)} of the {where}'s {gibibytes(total)} are left")
            break
    return max(0, kills), lines


RULE = Rule(_NAME, _judge, needs_steps=False)
