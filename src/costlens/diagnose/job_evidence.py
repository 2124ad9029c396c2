"""Evidence about a job: that of all ranks of its newest attempt, and the attempts before it."""

from __future__ import annotations

from dataclasses import dataclass

from costlens.core.records import RankRecord
from costlens.core.remembered import remembered
from costlens.diagnose.evidence import Evidence
from costlens.diagnose.slowness import Slowness, find_slowness
from costlens.diagnose.starvation import Starvation, find_starvation

__all__ = ["JobEvidence"]


@dataclass(frozen=True)
class JobEvidence:
    """What happened to the ranks of a job.

    Args:
        ranks: Evidence about each rank of the newest attempt that has a record, by rank.
        earlier: Records of the attempts before it, in their order.
    """

    ranks: tuple[Evidence, ...]
    earlier: tuple[RankRecord, ...] = ()

    @remembered
    def by_rank(self) -> dict[int, Evidence]:
        """Return the evidence about each rank."""
        return {evidence.now.rank.rank: evidence for evidence in self.ranks}

    @remembered
    def starvation(self) -> Starvation | None:
        """Return what late batches cost all ranks; None where that is little."""
        return find_starvation(self.ranks)

    @remembered
    def total_s(self) -> float:
        """Return the paid seconds of all ranks in it."""
        return sum(evidence.total_s for evidence in self.ranks)

    @remembered
    def num_iterations(self) -> int:
        """Return how many iterations the rank made that made the fewest."""
        return min((evidence.num_iterations for evidence in self.ranks), default=0)

    @remembered
    def slowness(self) -> Slowness | None:
        """Return who keeps the others waiting; None where nothing tells, or nobody is there."""
        return find_slowness(self) if len(self.ranks) > 1 else None

    def share(self, seconds: float) -> float:
        """Return ``seconds`` as a share (0 to 1) of the paid time of all; 0 where none was paid."""
        return min(1.0, max(0.0, seconds / self.total_s)) if self.total_s > 0 else 0.0
