"""Who is judged, which cause hides which, and what comes first."""

from __future__ import annotations

import pytest

from costlens.core.guard import faults
from costlens.core.records import RunPart
from costlens.diagnose.causes import CAUSES
from costlens.diagnose.evidence import Evidence
from costlens.diagnose.finding import Abstention, Rule, Severity
from costlens.diagnose.judge import MIN_ITERATIONS, Judgement, judge
from tests.unit.diagnose.planted import always, broken, find, train, waits


def found(judgement: Judgement) -> list[str]:
    """Return the names of findings in their order."""
    return [finding.name for finding in judgement.findings]


def judge_all(*findings: object, record: object = None) -> Judgement:
    """Return what comes of rules that find just these."""
    rules = [always(finding) for finding in findings]  # type: ignore[arg-type]
    return judge(Evidence(record or train()), rules)  # type: ignore[arg-type]


def test_the_greatest_loss_comes_first() -> None:
    """Findings are ordered by what mending them saves; equals by severity, then by name."""
    mild = find("padding_waste", 0.2, severity=Severity.INFO)
    judgement = judge_all(mild, find("transfer", 0.2), find("slow_logging", 0.6))
    assert found(judgement) == ["slow_logging", "transfer", "padding_waste"]


def test_what_endangers_the_run_comes_before_any_loss() -> None:
    """A critical finding without a price goes first, a mere warning without one goes last."""
    danger = find("hardware_fault", None, severity=Severity.CRITICAL)
    judgement = judge_all(find("memory_creep", None), find("transfer", 0.6), danger)
    assert found(judgement) == ["hardware_fault", "transfer", "memory_creep"]


def test_a_cause_hides_what_it_explains() -> None:
    """Who knows why data is late need not hear that it is; nor, of a straggler, that ranks wait."""
    assert found(judge_all(find("data_wait", 0.5), find("storage_read", 0.4))) == ["storage_read"]
    assert found(judge_all(find("communication", 0.5), find("straggler", 0.3))) == ["straggler"]
    assert found(judge_all(find("data_wait", 0.5))) == ["data_wait"]


def test_of_one_loss_with_several_parts_the_great_ones_are_told() -> None:
    """Parts of the same wait stay while they are at least half of the greatest."""
    causes = [find("storage_read", 0.4), find("slow_collate", 0.3), find("too_few_workers", 0.1)]
    assert found(judge_all(*causes)) == ["storage_read", "slow_collate"]


def test_what_saves_next_to_nothing_is_not_told() -> None:
    """A cause that is a good part of the steps is none of a run that does something else."""
    assert found(judge_all(find("transfer", 0.019), find("slow_logging", 0.02))) == ["slow_logging"]


def test_bound_by_computing_is_said_only_when_nothing_else_is() -> None:
    """The statement that all is well does not stand beside a finding."""
    well = find("compute_bound", None, severity=Severity.INFO)
    assert found(judge_all(well)) == ["compute_bound"]
    assert found(judge_all(well, find("overflow_skips", 0.02))) == ["overflow_skips"]


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"num_steps": MIN_ITERATIONS - 1}, "19 iterations after the first, and 20 are needed"),
        ({"num_steps": 0, "spent_s": {"startup": 9.0}}, "still starting"),
        (
            {"num_steps": 0, "spent_s": {"startup": 9.0}, "outcome": "failed"},
            "it ended before its second iteration",
        ),
        ({"stopped_s": 3.0}, "the process stood still for 3 s of 100 s"),
    ],
)
def test_some_are_not_judged_and_it_says_why(facts: dict[str, object], reason: str) -> None:
    """Start-up, too few steps and a stopped process (C011) say nothing of the steps."""
    record = train(**{"wait_s": 0.5, **facts})  # type: ignore[arg-type]
    judgement = judge(Evidence(record), [waits(), always(Abstention("transfer", "x"))])
    assert judgement == Judgement(unjudged=reason)
    assert found(judge(Evidence(train(MIN_ITERATIONS, 0.5)), [waits()])) == ["data_wait"]


def test_a_stretch_of_evaluation_and_saves_is_not_judged() -> None:
    """Between two records of a run that only evaluates there is no step to judge."""
    before, now = train(wait_s=0.5), train(wait_s=0.5, spent_s={"validation": 60.0})
    judgement = judge(Evidence(now, before), [waits(least=0.0)])
    assert judgement == Judgement(unjudged="nothing but evaluation and saves to look at")


def test_a_debug_run_is_not_judged() -> None:
    """C127: nothing is said of a run that somebody marked as a trial, not even of its device."""
    record = train(wait_s=0.5)
    run = record.run.model_copy(update={"debug": "fast_dev_run"})
    assert isinstance(run, RunPart)
    danger = always(find("hardware_fault", None), needs_steps=False)
    judgement = judge(Evidence(record.model_copy(update={"run": run})), [waits(), danger])
    assert judgement == Judgement(unjudged="a debug run (fast_dev_run)")


def test_a_rule_that_needs_no_steps_is_asked_at_once() -> None:
    """A faulty device is found during start-up, too."""
    danger = always(find("hardware_fault", None), needs_steps=False)
    judgement = judge(Evidence(train(3)), [danger, waits()])
    assert found(judgement) == ["hardware_fault"]
    assert judgement.unjudged is not None


def test_a_broken_rule_silences_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a rule raises is contained and counted; the other rules are heard."""
    monkeypatch.setattr(faults, "strict", False)
    monkeypatch.setattr(faults, "counts", {})
    judgement = judge(Evidence(train(wait_s=0.5)), [broken(ZeroDivisionError), waits()])
    assert found(judgement) == ["data_wait"]
    assert faults.counts["diagnose.broken"] == 1


def test_a_rule_may_find_what_the_table_does_not_know() -> None:
    """A cause without words of its own is told by its name."""
    assert found(judge_all(find("something_new", 0.3))) == ["something_new"]


def test_hidden_causes_are_known_ones() -> None:
    """A misspelt name in the table would hide nothing."""
    for name, cause in CAUSES.items():
        assert cause.hidden_by <= CAUSES.keys() - {name}, name


def test_rules_judge_a_difference() -> None:
    """What happened before the earlier record is no evidence."""
    before, now = train(100, 0.5), train(200, 0.25)
    assert Evidence(now, before).time_s["data_wait"] == pytest.approx(0.0)
    assert found(judge(Evidence(now, before), [waits()])) == []
    assert isinstance(waits(), Rule)
