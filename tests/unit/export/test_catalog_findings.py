"""Findings in metrics and on spans: bounded, with closed attributes, with money where known."""

from __future__ import annotations

from typing import Any

from costlens.core.finding_records import MAX_FINDINGS, FindingPart
from costlens.diagnose.causes import CAUSES
from costlens.export.catalog import METRICS, read_points
from costlens.export.catalog_findings import MAX_EXPORTED
from tests.unit.export.rehearsal import Rehearsal
from tests.unit.export.test_otel_traces import Tracing

BY_NAME = {metric.name: metric for metric in METRICS}


def part(name: str, **facts: Any) -> FindingPart:
    """Return a finding that lasts, at 1.50 an hour."""
    given = {"severity": "warning", "is_open": True, "share": 0.5}
    priced = {"money_per_hour": "1.50", "currency": "EUR"}
    return FindingPart(name=name, **{**given, **priced, **facts})


def points(name: str, *parts: FindingPart) -> dict[str, float]:
    """Return the values of a metric by the finding they are about."""
    run = Rehearsal()
    run.probed["findings"] = list(parts)
    return {
        str(attributes["costlens.finding.name"]): value  # type: ignore[misc]
        for attributes, value in read_points(BY_NAME[name], run.look())
    }


def test_what_lasts_is_1_and_what_is_over_is_0() -> None:
    """A finding keeps its series once it is over, so that its end is seen."""
    over = part("transfer", is_open=False)
    assert points("costlens.finding.open", part("storage_read"), over) == {
        "storage_read": 1,
        "transfer": 0,
    }


def test_money_is_told_where_it_is_known_and_while_it_lasts() -> None:
    """No price is no point, never 0."""
    unpriced = part("transfer", money_per_hour=None, currency=None)
    over = part("slow_logging", is_open=False)
    assert points("costlens.finding.cost.rate", part("storage_read"), unpriced, over) == {
        "storage_read": 1.5
    }


def test_series_are_bounded() -> None:
    """Of sixteen findings the first eight have series; what has no name in the table has none."""
    many = [part(name) for name in CAUSES][: MAX_FINDINGS - 1]
    for name in ("costlens.finding.open", "costlens.finding.cost.rate"):
        seen = points(name, part("made_up"), *many)
        assert list(seen) == [each.name for each in many[:MAX_EXPORTED]]
        assert len(seen) <= BY_NAME[name].max_series


def test_a_healthy_rank_has_no_series() -> None:
    """The many causes that a run does not have take no series."""
    assert points("costlens.finding.open") == {}


def attributes_of_a_period(*parts: FindingPart) -> dict[str, Any]:
    """Return the attributes of the first period's span in a run with these findings."""
    run = Rehearsal()
    run.probed["findings"] = list(parts)
    (period,) = Tracing(run).start().windows(1).end().named("costlens.rank.period")
    told = dict(period.attributes or {})
    return {name: value for name, value in told.items() if name.startswith("costlens.finding")}


def test_a_period_names_what_lasts() -> None:
    """The greatest with its severity and money, and all by name; what is over is left out."""
    over = part("slow_logging", is_open=False)
    assert attributes_of_a_period(part("storage_read"), part("padding_waste"), over) == {
        "costlens.finding": "storage_read",
        "costlens.finding.severity": "warning",
        "costlens.finding.cost.rate": 1.5,
        "costlens.findings": "storage_read,padding_waste",
    }
    assert attributes_of_a_period(over) == {}
