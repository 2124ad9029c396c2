"""faulty_node: all ranks of one node are slower than those of the others, or it keeps failing."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from costlens.core.records import Outcome
from costlens.diagnose.finding import JobRule, Place, Remedy, Severity, Verdict
from costlens.diagnose.slowness import blame, describe
from costlens.diagnose.wording import danger, loss

if TYPE_CHECKING:
    from costlens.core.records import RankRecord
    from costlens.diagnose.job_evidence import JobEvidence

__all__ = ["RULE"]

_NAME = "faulty_node"

# Two failures may be chance; three that began on the same of several nodes are not.
_LEAST_FAILURES = 3

# As for all that is said of steps; failures may be judged before there are any.
_LEAST_ITERATIONS = 20


def _judge(evidence: JobEvidence) -> Verdict:
    """Find a node whose ranks are all slow, or on which attempts have failed again and again.

    Saved: what the slowest of its ranks needs beyond the middle one, on all ranks. Of failures
    nothing: what they cost stands in the ledger as lost work.
    """
    is_judged = len(evidence.ranks) > 1 and evidence.num_iterations >= _LEAST_ITERATIONS
    slowness = evidence.slowness if is_judged else None
    if slowness is not None and slowness.ranks and blame(evidence, slowness) == _NAME:
        host = evidence.by_rank[slowness.ranks[0]].now.rank.host_name
        saved = evidence.share(slowness.lost_s * len(evidence.ranks))
        text = [f"all ranks of {host} are slow", *describe(evidence, slowness)]
        remedies, places = _remedies(host, saved), [Place(host)]
        return loss(_NAME, saved, text, remedies, places, slowness.ranks)
    failing = _find_failing(evidence)
    if failing is None:
        return None
    host = failing
    ranks = [r for r, own in evidence.by_rank.items() if own.now.rank.host_name == host]
    text = [
        f"{_LEAST_FAILURES} attempts or more ended with an error on {host}, and on no other node"
    ]
    advice = [remedy.text for remedy in _remedies(host, None)]
    return danger(_NAME, Severity.CRITICAL, text, advice, [Place(host)], ranks)


def _remedies(host: str, saved: float | None) -> list[Remedy]:
    return [
        Remedy(
            f"Leave {host} out of the next allocation: sbatch --exclude={host}, or a taint (see"
            " integrations/exclude-list)",
            saved,
        ),
        Remedy(f"Have {host} tested: clocks, cooling, its links, its memory"),
    ]


def _find_failing(evidence: JobEvidence) -> str | None:
    """Return the only node on which attempts failed, where they did so often enough."""
    hosts: Counter[str] = Counter()
    by_attempt: dict[int, list[RankRecord]] = {}
    for record in evidence.earlier:
        by_attempt.setdefault(record.attempt.number, []).append(record)
    for records in by_attempt.values():
        failed = {r.rank.host_name for r in records if _has_failed(r)}
        if len({r.rank.host_name for r in records}) > 1 and len(failed) == 1:
            hosts.update(failed)
    if len(hosts) != 1:
        return None
    host, num = hosts.most_common(1)[0]
    return host if num >= _LEAST_FAILURES else None


def _has_failed(record: RankRecord) -> bool:
    words = record.last_words
    is_hardware = words is not None and words.xid is not None
    return record.attempt.outcome is Outcome.FAILED or is_hardware


RULE = JobRule(_NAME, _judge, needs_steps=False)
