"""Asks costlens about a simulated run, the way ``costlens report`` does after a real one.

Every rank watches itself window by window and keeps what it found in its last record; the report
reads the last records of all ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.diagnosis.cases import Case, Plan, make_case
from benchmarks.diagnosis.job import Job
from benchmarks.diagnosis.recorder import PRICE_PER_HOUR, write_records
from benchmarks.diagnosis.trace import Trace
from benchmarks.diagnosis.truth import make_bill
from costlens.core.finding_records import FindingPart
from costlens.core.records import RankRecord
from costlens.diagnose.watch import FindingWatch
from costlens.export.finding_parts import own_parts
from costlens.export.run_findings import find_causes

__all__ = ["HEALTHY", "MAX_MONEY_ERROR", "Result", "judge_case", "judge_plan", "watch_rank"]

HEALTHY = "compute_bound"
"""What is said of a run in which there is nothing to mend."""


MAX_MONEY_ERROR = 0.15
"""By how much an estimate may miss what the simulated fix saves, as a share of that."""

MAX_LEAST_ERROR = 0.02
"""By how much what is said to be the least may exceed it: one job differs so much from itself."""


@dataclass(frozen=True)
class Result:
    """What was said of a case, and what is true of it.

    Args:
        seed: The case.
        device: What its ranks compute on.
        num_ranks: How many there are.
        truth: Planted causes, the dominant one first.
        savings: What mending each saves of the run under way and of the whole; None for a danger.
        found: The findings, the most important first.
        shares: The share of all money that each says it has cost so far; None where nothing.
        is_least: Whether the first says that it is this at least, rather than about this.
        undecided: What could not be told, and why.
        unjudged: Why nothing was judged; None where it was.
    """

    seed: int
    device: str
    num_ranks: int
    truth: tuple[str, ...]
    savings: tuple[tuple[float, float] | None, ...]
    found: tuple[str, ...]
    shares: tuple[float | None, ...]
    is_least: bool
    undecided: tuple[tuple[str, str], ...]
    unjudged: str | None

    @property
    def is_right(self) -> bool:
        """Return whether the first finding is the dominant cause, or there is none in health."""
        return self.found[:1] == self.truth[:1]

    @property
    def money_error(self) -> float | None:
        """Return by how much the first finding, if it is right, misses the saving, as a share."""
        if not self.found or not self.is_right or self.shares[0] is None or not self.savings[0]:
            return None
        return self.shares[0] / self.savings[0][1] - 1

    @property
    def is_close(self) -> bool | None:
        """Return whether the money of the first finding, if it is right, is what it says it is.

        Within 15 % of the saving; no more than 2 % above it, where it is to be the least. None
        without any.
        """
        error = self.money_error
        if error is None:
            return None
        return error <= MAX_LEAST_ERROR if self.is_least else abs(error) <= MAX_MONEY_ERROR


def judge_plan(plan: Plan) -> Result:
    """Return what is said of a case that is yet to be made."""
    return judge_case(make_case(plan))


def judge_case(case: Case) -> Result:
    """Return what is said of a case."""
    records = [watch_rank(case.job, trace) for trace in case.traces]
    causes = find_causes(records)
    money = PRICE_PER_HOUR * make_bill(case.job, case.traces).total_s / 3600
    found: Sequence[FindingPart] = [f for f in causes["findings"] if f.name != HEALTHY]
    return Result(
        seed=case.plan.seed,
        device=case.job.device,
        num_ranks=case.job.num_ranks,
        truth=tuple(case.savings),
        savings=tuple(s and (s.steady, s.whole) for s in case.savings.values()),
        found=tuple(finding.name for finding in found),
        shares=tuple(_find_share(finding, money) for finding in found),
        is_least=any(finding.is_least for finding in found[:1]),
        undecided=tuple((each.name, each.missing) for each in causes["undecided"]),
        unjudged=causes["unjudged"],
    )


def _find_share(finding: FindingPart, money: float) -> float | None:
    return None if finding.money_so_far is None else float(finding.money_so_far) / money


def watch_rank(job: Job, trace: Trace) -> RankRecord:
    """Return the last record of a rank, with what it has found of itself."""
    watch = FindingWatch()
    record = None
    for record in write_records(job, trace):
        watch.look(record)
    assert record is not None
    return record.model_copy(update={"findings": own_parts(watch.standing, record)})
