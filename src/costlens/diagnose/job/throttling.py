"""throttling of a job: a device that is held down sets the pace of all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costlens.diagnose.finding import JobRule, Place, Remedy, Verdict
from costlens.diagnose.slowness import blame, describe
from costlens.diagnose.throttles import held_share
from costlens.diagnose.wording import loss

if TYPE_CHECKING:
    from costlens.diagnose.job_evidence import JobEvidence

__all__ = ["RULE"]

_NAME = "throttling"


def _judge(evidence: JobEvidence) -> Verdict:
    """Find slow ranks whose devices are held down.

    Saved: what the slowest needs beyond the middle rank, on all ranks. Where all are held down
    alike, none is slow, and each says so by itself.
    """
    slowness = evidence.slowness
    if slowness is None or not slowness.ranks or blame(evidence, slowness) != _NAME:
        return None
    held = [rank for rank in slowness.ranks if held_share(evidence.by_rank[rank])]
    own = evidence.by_rank[held[0]].now
    part = own.gpus[0]
    place = Place(own.rank.host_name, part.uuid, part.pci_id)
    saved = evidence.share(slowness.lost_s * len(evidence.ranks))
    remedies = [
        Remedy(
            f"Have cooling and power supply of {place.host_name} looked at, and leave it out until"
            " then",
            saved,
        ),
        Remedy("nvidia-smi -pl WATTS: a lower power limit on all ranks keeps them even"),
    ]
    text = [f"GPU {part.uuid} of rank {held[0]} is held down", *describe(evidence, slowness)]
    return loss(_NAME, saved, text, remedies, [place], held)


RULE = JobRule(_NAME, _judge)
