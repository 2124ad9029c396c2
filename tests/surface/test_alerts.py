"""Alerts and recording rules as text: what they may name, and what each must have.

What they do is proven in tests/backends, on the real tools.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from costlens.export.catalog import METRICS
from grafana.alerts.catalogue import ALERTS, RECORDINGS
from grafana.alerts.model import Alert
from grafana.alerts.render import annotate, fill, render_tests, scaled
from grafana.alerts.runbook import render_runbook
from grafana.alerts.situations import QUIET
from grafana.names import label_name, series_names
from grafana.settings import SETTINGS

TARGET = Path(__file__).parents[2] / "src" / "costlens" / "data" / "grafana"
MAX_RANGE_S = 86400
# How old an attempt is, and a counter that keeps being one.
SUMS = {"CostlensQueueWaitLong", "gpu:hw_energy:joules"}
UNITS_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
# Words of PromQL, and labels that rules make themselves.
OWN_LABELS = {"cause", "hw_id", "host_name", "error_type", "UUID", "le", "alertname"}
SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)\{([^}]*)\}")
BY = re.compile(r"\b(?:by|on|ignoring|group_left|group_right|without)\s*\(([^)]*)\)")
METRIC = re.compile(
    r"\b((?:costlens|hw|process|system|container|DCGM)_\w+|(?:run|rank|gpu):[\w:]+)"
)

LABELS_OF: dict[str, set[str]] = {}
for _metric in METRICS:
    for _name in series_names(_metric):
        labels = {label_name(attribute) for attribute in _metric.attributes}
        LABELS_OF[_name] = labels | {"costlens_run_id", "costlens_rank", "le"}
LABELS_OF["hw_gpu_utilization"] = LABELS_OF["hw_gpu_utilization_ratio"]
ALL_LABELS = set().union(*LABELS_OF.values())
RECORDED = [recording.name for recording in RECORDINGS]


def _exprs() -> Iterator[tuple[str, str]]:
    for recording in RECORDINGS:
        yield recording.name, fill(recording.expr)
    for alert in ALERTS:
        yield alert.name, fill(alert.expr)


def _series_of(expr: str) -> set[str]:
    """Return the series that an expression reads."""
    without = BY.sub("", re.sub(r'"[^"]*"', '""', expr))
    without = re.sub(r"\{[^}]*\}", "", without)
    return {name for name in METRIC.findall(without) if name not in ALL_LABELS - LABELS_OF.keys()}


def test_every_series_exists() -> None:
    """C147: no rule reads what nobody exports or records; a renamed metric fails here."""
    for name, expr in _exprs():
        read = {series for series in _series_of(expr) if not series.startswith("DCGM_")}
        assert read, name
        assert read <= LABELS_OF.keys() | {*RECORDED}, name


def test_every_label_and_value_exists() -> None:
    """A matcher names a label of its metric and values that it can have."""
    values = {
        (series, label_name(attribute)): allowed
        for metric in METRICS
        for series in series_names(metric)
        for attribute, allowed in metric.attributes.items()
    }
    for name, expr in _exprs():
        for series, matchers in SELECTOR.findall(expr):
            for label, sign, value in re.findall(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"', matchers):
                if series in LABELS_OF:
                    assert label in LABELS_OF[series], (name, series, label)
                allowed = values.get((series, label)) or ()
                for word in value.split("|") if allowed and "(" not in value else ():
                    assert word in allowed, (name, label, word, sign)


def test_every_grouping_is_by_known_labels() -> None:
    """Nothing is grouped or joined by a label that no metric has."""
    for name, expr in _exprs():
        for listed in BY.findall(expr):
            labels = {label.strip() for label in listed.split(",")} - {""}
            assert labels <= ALL_LABELS | OWN_LABELS, (name, labels)


def test_recordings_use_only_those_above_them() -> None:
    """A group is evaluated in order: a rule that reads a later one lags a whole interval behind."""
    for position, recording in enumerate(RECORDINGS):
        later = {*RECORDED[position:]}
        assert not later & _series_of(fill(recording.expr)), recording.name


def _pages() -> list[str]:
    return [path.read_text(encoding="utf-8") for path in TARGET.rglob("*.json")]


def test_every_recording_is_used() -> None:
    """Nothing is recorded for nobody: other rules, the runbook or dashboards read it."""
    words = "\n".join([expr for _, expr in _exprs()] + [render_runbook(), *_pages()])
    for name in RECORDED:
        assert name in words, name


def test_every_query_is_bounded() -> None:
    """No rule looks back for longer than a day, and every range is of a rate's kind."""
    for name, expr in _exprs():
        ranges = re.findall(r"(?:\[|offset )(\d+)(ms|[smhd])\b", expr)
        assert all(int(n) * UNITS_S[unit] <= MAX_RANGE_S for n, unit in ranges), name
        assert "{__name__" not in expr, name
        counters = {s for s in _series_of(expr) if s.endswith(("_total", "_bucket"))}
        for counter in counters:
            bare = re.search(rf"{counter}(?:\{{[^}}]*\}})?\s*(?!\[)(?=[\s)])", expr)
            known = name in SUMS
            assert known or not bare or ":" in counter, (name, counter)


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_has_all_that_people_need(alert: Alert) -> None:
    """Name, words with the numbers, three checks, queries, and links to runbook and dashboard."""
    assert re.fullmatch(r"Costlens[A-Za-z]+", alert.name)
    notes = annotate(alert)
    assert {"summary", "description", "runbook_url", "dashboard_url"} <= notes.keys()
    assert "$value" in alert.description
    assert "$value" not in alert.summary
    assert alert.summary[-1] not in ".!"
    assert len(alert.summary) < 160
    assert alert.description.endswith(".")
    assert len(alert.checks) == 3
    assert all(check[-1] in ".?!)" for check in alert.checks), alert.checks
    assert alert.queries
    assert getattr(SETTINGS.dashboards, alert.dashboard)
    if alert.area == "hardware":
        assert "host_name" in alert.description
    if "hw_id" in alert.value:
        assert "hw_id" in alert.description


def test_names_are_unique() -> None:
    """An alert is found by its name, and a recorded series by its own."""
    names = [alert.name for alert in ALERTS]
    assert len({*names}) == len(names)
    assert len({*RECORDED}) == len(RECORDED)
    assert all(re.fullmatch(r"(run|rank|gpu):\w+:\w+", name) for name in RECORDED)


def test_the_runbook_has_a_section_each() -> None:
    """The anchor of every link is a heading of the runbook."""
    headings = re.findall(r"^## (\w+)$", render_runbook(), re.MULTILINE)
    assert headings == [alert.name for alert in ALERTS]
    for alert in ALERTS:
        anchor = annotate(alert)["runbook_url"].partition("#")[2]
        assert anchor in {heading.lower() for heading in headings}


def test_shorter_windows_change_times_and_nothing_else() -> None:
    """A test with windows a thirtieth as long judges by the same shares and counts."""
    short = scaled(SETTINGS, 1 / 30)
    assert fill("[$rate] > $data_wait_ratio", short) == "[10s] > 0.2"
    assert fill("[$rate] > $data_wait_ratio") == "[5m] > 0.2"
    assert fill("$heartbeat_age_s", short) == "10"
    with pytest.raises(KeyError):
        fill("$no_such_word")


def test_every_alert_is_looked_at_in_every_quiet_situation() -> None:
    """The promtool tests hold each alert against start-up, evaluation, saves and the rest."""
    text = render_tests(["rules.yaml"], (), QUIET)
    assert len(QUIET) >= 9
    assert text.count("exp_alerts: []") >= len(QUIET) * len(ALERTS)
