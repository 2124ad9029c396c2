"""Records and rules for tests of what stands around the rules: these rules see what is planted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from costlens.core.records import RankRecord
from costlens.diagnose.evidence import Evidence
from costlens.diagnose.finding import Abstention, Finding, Remedy, Rule, Severity, Verdict
from tests.unit.account.build import START, make_iteration_time, make_record

STEP_S = 0.5


def train(
    num_steps: int = 100,
    wait_s: float = 0.0,
    *,
    rank: int = 0,
    spent_s: dict[str, float] | None = None,
    **facts: Any,
) -> RankRecord:
    """Return the record of a rank that computed so many steps of half a second.

    Args:
        num_steps: Iterations after the first.
        wait_s: Seconds that each waited for its batch besides.
        rank: The rank.
        spent_s: Seconds in other phases.
        **facts: Further fields of the record.
    """
    time_s = {"compute": num_steps * STEP_S, "data_wait": num_steps * wait_s, **(spent_s or {})}
    facts.setdefault("iteration_time", make_iteration_time(*[STEP_S + wait_s] * num_steps))
    facts.setdefault("outcome", "running")
    return make_record(rank=rank, time_s=time_s, start_time=START, **facts)


def find(name: str, share: float | None, **facts: Any) -> Finding:
    """Return a finding with one measurement and one remedy."""
    facts.setdefault("severity", Severity.WARNING)
    remedy = Remedy(f"Mend {name}.", share)
    return Finding(
        name, saved_share=share, evidence=(f"{name} it is.",), remedies=(remedy,), **facts
    )


def always(verdict: Verdict, name: str | None = None, *, needs_steps: bool = True) -> Rule:
    """Return a rule that says the same whatever it sees."""
    own = verdict.name if isinstance(verdict, (Finding, Abstention)) else "nothing"
    return Rule(name or own, lambda _evidence: verdict, needs_steps)


def waits(name: str = "data_wait", least: float = 0.1) -> Rule:
    """Return a rule that finds the share of the time in which data was waited for."""

    def look(evidence: Evidence) -> Verdict:
        share = evidence.share(evidence.time_s["data_wait"])
        return find(name, share) if share >= least else None

    return Rule(name, look)


def broken(error: Callable[[], Exception]) -> Rule:
    """Return a rule that raises."""

    def fail(_evidence: Evidence) -> Verdict:
        raise error()

    return Rule("broken", fail)
