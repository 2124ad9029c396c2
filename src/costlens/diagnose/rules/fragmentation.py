"""fragmentation: the device has memory, in pieces too small for what is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costlens.diagnose.finding import Rule, Severity, Verdict
from costlens.diagnose.retries import is_fragmented, num_retries, tell_retries
from costlens.diagnose.wording import gibibytes

if TYPE_CHECKING:
    from costlens.diagnose.evidence import Evidence

__all__ = ["RULE"]

_NAME = "fragmentation"


def _judge(evidence: Evidence) -> Verdict:
    """Find an allocator that runs out while a good part of its memory is free in pieces.

    Saved: see ``tell_retries``.
    """
    part = evidence.now.allocator
    if part is None or not is_fragmented(evidence):
        return None
    lines = [
        (
            f"{gibibytes(part.inactive_split_bytes)} of {gibibytes(part.reserved_bytes)} that torch"
            " holds are free pieces of blocks in use"
        ),
        f"{num_retries(evidence)} times the allocator had to empty its cache",
    ]
    remedies = [
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        "Batches of like sizes: pad lengths up to a few fixed ones",
    ]
    return tell_retries(_NAME, evidence, lines, remedies, Severity.WARNING)


RULE = Rule(_NAME, _judge)
