"""Puts the sections of the page together. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from costlens.core.run_record import RunRecord
from costlens.export.console_text import make_printable
from costlens.export.page.devices import describe_gpus, describe_hosts
from costlens.export.page.events import describe_events
from costlens.export.page.findings import Findings, describe_findings
from costlens.export.page.health import describe_practice, describe_watching
from costlens.export.page.members import describe_attempts, describe_ranks
from costlens.export.page.money import describe_saves, describe_units
from costlens.export.page.over_time import describe_ledger
from costlens.export.page.overview import Head, describe_head
from costlens.export.page.parts import Section
from costlens.export.page.quality import describe_quality
from costlens.export.page.rows import Rows, make_rows
from costlens.export.page.speed import describe_speed
from costlens.export.page.waterfall import describe_waterfall
from costlens.export.page.windows import History

__all__ = ["Page", "make_page"]


@dataclass(frozen=True, slots=True)
class Page:
    """All that the template shows.

    Args:
        head: What stands above all sections.
        findings: What to fix first.
        sections: The sections in order.
        rows: What the charts over time are drawn from.
        made_s: Unix time of the page.
        version: The costlens that made it.
    """

    head: Head
    findings: Findings
    sections: Sequence[Section]
    rows: Rows
    made_s: float
    version: str


def make_page(record: RunRecord, history: History, now: float, version: str) -> Page:
    """Return the page of a run.

    Args:
        record: The merged record.
        history: How the run went over time.
        now: Unix time of the reader.
        version: The costlens that makes it.
    """
    shown = make_printable(record)
    rows = make_rows(shown, history.columns)
    sections = (
        describe_waterfall(shown),
        describe_ledger(shown, history, rows),
        describe_events(shown, history.columns),
        describe_speed(shown, rows),
        describe_quality(shown, rows),
        describe_gpus(shown, rows),
        describe_hosts(shown, rows),
        describe_units(shown),
        describe_saves(shown),
        describe_practice(shown),
        describe_attempts(shown),
        describe_ranks(shown),
        describe_watching(shown),
    )
    return Page(describe_head(shown, now), describe_findings(shown), sections, rows, now, version)
