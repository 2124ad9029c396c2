"""A live rank's findings: in its record with their money, and in its log when they come and go."""

from __future__ import annotations

from typing import Any

import pytest

from costlens.core.clock import NS_PER_S
from costlens.core.finding_records import FindingPart
from costlens.core.phases import Phase
from costlens.core.price_records import PricePart
from costlens.diagnose.finding import Rule, Severity
from costlens.diagnose.watch import FindingWatch
from costlens.diagnosing import Findings
from tests.log_events import capture_events
from tests.unit.diagnose.planted import always, find, waits
from tests.unit.export.rehearsal import PRICE, Rehearsal

SLOW = {Phase.DATA_WAIT: 0.5, Phase.FORWARD: 0.5}
FAST = {Phase.FORWARD: 1.0}


class Watched:
    """A rehearsed run of steps of a second whose findings are looked for."""

    def __init__(self, *rules: Rule, price: PricePart | None = PRICE) -> None:
        self.run = Rehearsal(price=price)
        self.findings = Findings(self.run.state)
        self.findings._watch = FindingWatch(rules or [waits()])
        self.parts: list[FindingPart] = []

    def windows(self, num: int, phases: dict[Phase, float] = SLOW) -> Watched:
        """Close windows of 30 steps."""
        for _ in range(num):
            for _ in range(30):
                self.run.step(phases)
            snapshot = self.findings.complete(self.run.look())
            self.parts = snapshot.record.findings
        return self


def logged(watched: Watched, *windows: tuple[int, dict[Phase, float]]) -> list[dict[str, Any]]:
    """Return what is logged of findings while windows close."""
    with capture_events() as events:
        for num, phases in windows:
            watched.windows(num, phases)
    return [dict(e) for e in events if str(e["event"]).startswith("costlens.finding")]


def test_a_lasting_finding_stands_in_the_record_with_its_money() -> None:
    """Half of the time at 3.60 EUR an hour is 1.80 an hour; 15 s of each window so far."""
    (part,) = Watched().windows(6).parts
    assert (part.name, part.severity, part.is_open) == ("data_wait", "warning", True)
    assert (part.money_per_hour, part.currency) == ("1.80", "EUR")
    assert part.money_so_far == "0.075"  # five windows after the first
    assert part.since is not None


def test_without_a_price_no_money_is_told() -> None:
    """The share is known all the same."""
    (part,) = Watched(price=None).windows(6).parts
    assert (part.money_per_hour, part.money_so_far, part.currency) == (None, None, None)
    assert part.share == pytest.approx(0.5)


def test_findings_are_logged_when_they_open_and_when_they_close() -> None:
    """Once each, with cause, severity and money, and with the best remedy in words."""
    opened, closed = logged(Watched(), (6, SLOW), (20, FAST))
    assert (opened["event"], opened["level"]) == ("costlens.finding.opened", "warning")
    assert (opened["finding"], opened["severity"]) == ("data_wait", "warning")
    assert (opened["money_per_hour"], opened["currency"]) == ("1.80", "EUR")
    assert opened["message"] == "the training waits for its data; Mend data_wait."
    assert (closed["event"], closed["level"]) == ("costlens.finding.closed", "info")
    assert closed["finding"] == "data_wait"


def test_a_danger_is_an_error_and_health_is_no_news() -> None:
    """The level is that of the severity; that all is well is for who debugs."""
    danger = always(find("hardware_fault", None, severity=Severity.CRITICAL))
    assert [e["level"] for e in logged(Watched(danger), (6, FAST))] == ["error"]
    well = always(find("compute_bound", None, severity=Severity.INFO))
    assert {e["level"] for e in logged(Watched(well), (6, FAST))} <= {"debug"}


def test_what_is_over_stays_in_the_record_behind_what_lasts() -> None:
    """So that a reader sees what it has cost, and metrics see its end."""
    watched = Watched(waits("storage_read"), always(find("padding_waste", 0.1)))
    parts = watched.windows(6).windows(20, FAST).parts
    assert [(part.name, part.is_open) for part in parts] == [
        ("padding_waste", True),
        ("storage_read", False),
    ]


def test_a_standstill_is_recorded() -> None:
    """C011: how long the process stood still is a fact of its record."""
    watched = Watched()
    watched.findings.standstill.total_ns = 3 * NS_PER_S
    snapshot = watched.findings.complete(watched.run.look())
    assert snapshot.record.stopped_s == 3.0
