"""A device whose memory runs out again and again: whether in pieces, and what that costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costlens.diagnose.finding import Finding, Remedy, Severity
from costlens.diagnose.lumps import retry_s
from costlens.diagnose.measures import MIN_SHARE, percent, rise
from costlens.diagnose.wording import danger, loss

if TYPE_CHECKING:
    from costlens.diagnose.evidence import Evidence

__all__ = ["is_fragmented", "num_retries", "tell_retries"]

# The allocator empties its cache, which waits for the device, and asks again: once is start-up.
_LEAST_RETRIES = 3

# A tenth of what was taken from the driver, and a block that matters: less is the rounding of an
# allocator that cuts blocks of 2 and 20 MiB.
_MIN_SHARE = 0.1
_MIN_BYTES = 512 * 2**20


def num_retries(evidence: Evidence) -> int:
    """Return how often the allocator had to empty its cache; 0 where it is no more than chance."""
    part = evidence.now.allocator
    if part is None or part.num_alloc_retries < _LEAST_RETRIES:
        return 0
    retries = rise(evidence, "allocator", "num_alloc_retries") or 0.0
    return int(retries) if retries >= _LEAST_RETRIES else 0


def is_fragmented(evidence: Evidence) -> bool:
    """Return whether allocations were retried while much of the memory was free in pieces."""
    part = evidence.now.allocator
    if part is None or not num_retries(evidence):
        return False
    return part.inactive_split_bytes >= max(_MIN_BYTES, _MIN_SHARE * part.reserved_bytes)


def tell_retries(
    name: str, evidence: Evidence, lines: list[str], remedies: list[str], severity: Severity
) -> Finding:
    """Return the finding of a memory that runs out, with what it costs where that is much.

    Each retry waits for all kernels and gives memory back to the driver. Saved: what the iterations
    that hold one take longer than the others.

    Args:
        name: The finding.
        evidence: The evidence.
        lines: What it follows from.
        remedies: What would help, the best first.
        severity: How soon somebody should look, where it is a danger only.
    """
    lost_s = retry_s(evidence)
    if lost_s < MIN_SHARE * evidence.iteration_s:
        return danger(name, severity, lines, remedies)
    saved = evidence.share(lost_s)
    first, *others = remedies
    return loss(
        name,
        saved,
        [*lines, f"that takes {percent(lost_s / evidence.iteration_s)} of the iterations"],
        [Remedy(first, saved), *(Remedy(text) for text in others)],
    )
