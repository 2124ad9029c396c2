"""Who is slow in a job, and what is to blame: a device that is held down, a node, or a rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from costlens.diagnose.measures import MIN_SHARE, percent
from costlens.diagnose.pace import find_pace
from costlens.diagnose.throttles import held_share

if TYPE_CHECKING:
    from costlens.diagnose.job_evidence import JobEvidence

__all__ = ["Slowness", "blame", "describe", "find_slowness"]

_LEAST_RANKS_OF_NODE = 2
_MAX_NAMED = 8


@dataclass(frozen=True, slots=True)
class Slowness:
    """Who keeps a job waiting.

    Args:
        ranks: The slow ranks, the slowest first; empty where all are alike.
        lost_s: What all lose to the slowest, in seconds of one rank.
        lag: Share (above 0) by which the slowest is slower than the middle rank.
        signal: What it was measured by.
    """

    ranks: tuple[int, ...]
    lost_s: float
    lag: float
    signal: str


def find_slowness(evidence: JobEvidence) -> Slowness | None:
    """Return who keeps the job waiting; None where nothing tells.

    Args:
        evidence: The evidence, of two ranks or more.
    """
    pace = find_pace(evidence.ranks, counts_waits=evidence.starvation is None)
    if pace is None or pace.median_s <= 0:
        return None
    iteration_s = max(own.iteration_s for own in evidence.ranks)
    is_worth = pace.lost_s >= MIN_SHARE * iteration_s
    lag = pace.lost_s / pace.median_s
    return Slowness(pace.slow if is_worth else (), pace.lost_s, lag, pace.signal)


def blame(evidence: JobEvidence, slowness: Slowness) -> str:
    """Return the name of the finding that a slowness is.

    Args:
        evidence: The evidence.
        slowness: Who is slow; at least one rank.
    """
    if any(held_share(evidence.by_rank[rank]) for rank in slowness.ranks):
        return "throttling"
    hosts: dict[str, set[int]] = {}
    for rank, own in evidence.by_rank.items():
        hosts.setdefault(own.now.rank.host_name, set()).add(rank)
    slow = set(slowness.ranks)
    whole = [host for host, ranks in hosts.items() if ranks & slow]
    is_node = len(whole) == 1 and len(hosts) > 1 and hosts[whole[0]] == slow
    return "faulty_node" if is_node and len(slow) >= _LEAST_RANKS_OF_NODE else "straggler"


def describe(evidence: JobEvidence, slowness: Slowness) -> list[str]:
    """Return who is slow and by how much, a sentence each."""
    first = slowness.ranks[0]
    host = evidence.by_rank[first].now.rank.host_name
    lines = [
        (
            f"rank {first} on {host} needs {percent(slowness.lag)} longer than the middle rank, by"
            f" {slowness.signal}"
        ),
        f"all {len(evidence.ranks)} ranks wait for it in every collective",
    ]
    if len(slowness.ranks) > 1:
        named = ", ".join(str(rank) for rank in sorted(slowness.ranks)[:_MAX_NAMED])
        lines.append(f"{len(slowness.ranks)} ranks are slow: {named}")
    wait_s = evidence.by_rank[first].time_s["data_wait"]
    if wait_s >= MIN_SHARE * evidence.by_rank[first].iteration_s:
        share = wait_s / evidence.by_rank[first].iteration_s
        lines.append(f"rank {first} waits for data in {percent(share)} of its iterations")
    return lines
