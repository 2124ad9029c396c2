"""The page of the metric catalogue on what a rank finds of itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal

from costlens.core.finding_records import FindingPart
from costlens.core.snapshot import Snapshot
from costlens.diagnose.causes import CAUSES
from costlens.diagnose.finding import Severity
from costlens.export.metric import Metric
from costlens.export.readings import Attributes, Point

__all__ = ["FINDING_METRICS", "MAX_EXPORTED", "exported_findings"]

MAX_EXPORTED = 8
"""Most findings with series of their own, those first that last and cost the most."""

_NAME = "costlens.finding.name"
_SEVERITY = "costlens.finding.severity"
_CURRENCY = "costlens.cost.currency"
_ATTRIBUTES = {_NAME: tuple(CAUSES), _SEVERITY: tuple(each.value for each in Severity)}
# A finding has one severity at a time.
_NUM_OWN = {_NAME: MAX_EXPORTED, _SEVERITY: 1}


def exported_findings(snapshot: Snapshot) -> Iterator[tuple[Attributes, FindingPart]]:
    """Yield the findings that have opened in the attempt, as far as they have series."""
    known = (part for part in snapshot.record.findings if part.name in CAUSES)
    for part, _ in zip(known, range(MAX_EXPORTED), strict=False):
        yield {_NAME: part.name, _SEVERITY: part.severity}, part


def _is_open(snapshot: Snapshot) -> Iterable[Point]:
    return [(names, int(bool(part.is_open))) for names, part in exported_findings(snapshot)]


def _cost_rate(snapshot: Snapshot) -> Iterable[Point]:
    return [
        ({**names, _CURRENCY: part.currency}, float(Decimal(part.money_per_hour)))
        for names, part in exported_findings(snapshot)
        if part.is_open and part.money_per_hour is not None and part.currency is not None
    ]


FINDING_METRICS: tuple[Metric, ...] = (
    Metric(
        "costlens.finding.open",
        "gauge",
        "",
        "1 while this rank finds that cause of slowness, waste or danger of itself, 0 once it is "
        "over.",
        _is_open,
        _ATTRIBUTES,
        num_own=_NUM_OWN,
    ),
    Metric(
        "costlens.finding.cost.rate",
        "gauge",
        "{currency}/h",
        "Money an hour that mending the cause would save on this rank, while it lasts.",
        _cost_rate,
        {**_ATTRIBUTES, _CURRENCY: ()},
        num_own=_NUM_OWN,
    ),
)
"""Only what has opened has series, so that the many causes a run does not have take none."""
