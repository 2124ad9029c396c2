"""Ranks together: each cause once, with its ranks and its share of everybody's time."""

from __future__ import annotations

import pytest

from costlens.diagnose.evidence import Evidence
from costlens.diagnose.finding import Abstention, JobRule, Severity
from costlens.diagnose.job_evidence import JobEvidence
from costlens.diagnose.job_judge import JobJudgement, judge_job
from tests.unit.diagnose.planted import always, find, train, waits


def job(*records: object) -> JobEvidence:
    """Return evidence about the ranks with these records."""
    return JobEvidence(tuple(Evidence(record) for record in records))  # type: ignore[arg-type]


def names(judgement: JobJudgement) -> list[str]:
    """Return the names of findings in their order."""
    return [each.finding.name for each in judgement.findings]


def test_a_cause_on_several_ranks_is_told_once() -> None:
    """Two of three ranks wait 50 s and 100 s of 100, 150 and 50 s paid: half of the 300 s."""
    evidence = job(train(wait_s=0.5), train(wait_s=1.0, rank=1), train(rank=2))
    (each,) = judge_job(evidence, [waits()], []).findings
    assert (each.finding.name, each.scope) == ("data_wait", "rank")
    assert each.shares == {0: pytest.approx(0.5), 1: pytest.approx(2 / 3)}
    assert each.share == pytest.approx(150 / 300)


def test_the_worst_rank_tells() -> None:
    """Evidence and remedies are those of the rank that loses the most, the severity the worst."""
    evidence = job(train(wait_s=0.5), train(wait_s=1.0, rank=1))
    (each,) = judge_job(evidence, [waits()], []).findings
    assert each.finding.saved_share == pytest.approx(2 / 3)
    assert each.severity is Severity.WARNING


def test_a_rule_about_the_job_explains_what_ranks_see() -> None:
    """The others wait in communication because one rank is slow: the straggler is told alone."""
    slow = find("straggler", 0.4, ranks=(1,))
    rule = JobRule("straggler", lambda evidence: slow if len(evidence.ranks) == 2 else None)
    waiting = always(find("communication", 0.6))
    judgement = judge_job(job(train(), train(rank=1)), [waiting], [rule])
    assert names(judgement) == ["straggler"]
    assert judgement.findings[0].scope == "job"
    assert judgement.findings[0].share == 0.4


def test_the_job_is_not_judged_while_a_rank_is_not() -> None:
    """Beside a rank that is still starting any other looks slow; that rank is left out."""
    rule = JobRule("straggler", lambda _evidence: find("straggler", 0.4))
    at_once = JobRule("idle_devices", lambda _e: find("idle_devices", 0.2), needs_steps=False)
    evidence = job(train(wait_s=0.5), train(2, rank=1))
    judgement = judge_job(evidence, [waits()], [rule, at_once])
    assert sorted(names(judgement)) == ["data_wait", "idle_devices"]
    assert judgement.unjudged is None


def test_nobody_judged_is_told_with_the_reason() -> None:
    """The job is as judged as its ranks are."""
    judgement = judge_job(job(train(1), train(2, rank=1)), [waits()], [])
    assert judgement.unjudged == "1 iterations after the first, and 20 are needed"


def test_what_cannot_be_told_is_said_once() -> None:
    """An abstention of all ranks is one; none is said of a cause that another rank found."""
    no_signal = always(Abstention("transfer", "pinned memory is not recorded"))
    records = (train(wait_s=0.5), train(rank=1))
    judgement = judge_job(job(*records), [no_signal, waits()], [])
    assert [each.name for each in judgement.abstentions] == ["transfer"]
    either = [waits("transfer"), no_signal]
    assert judge_job(job(*records), either, []).abstentions == ()


def test_shares_of_a_job_are_of_the_time_of_all() -> None:
    """50 s of the 150 s that two ranks were paid for are a third; more than all is all."""
    evidence = job(train(wait_s=0.5), train(rank=1))
    assert evidence.total_s == 150
    assert evidence.share(50) == pytest.approx(1 / 3)
    assert evidence.share(1000) == 1.0
    assert JobEvidence(()).share(1.0) == 0.0
