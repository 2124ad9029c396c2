"""The conventions of the dashboards: what makes a page work on somebody else's Grafana."""

from __future__ import annotations

import re
from itertools import combinations
from typing import Any

import pytest

from costlens.export.catalog import METRICS, RANK, RUN_ID
from grafana.alerts.catalogue import ALERTS
from grafana.build import TARGET, main, make_files
from grafana.dashboards import DASHBOARDS
from grafana.names import label_name, select, series_names
from grafana.settings import SETTINGS, promql_duration
from tests.dashboards import DASHBOARD_UIDS, PAGES, fill, panels, queries

UNITS = {
    *("none", "short", "s", "bytes", "Bps", "percentunit", "watt", "joule", "celsius", "hertz"),
}
WITHOUT_QUERY = {"row", "alertlist"}
SCRAPED_NAMES = {"hw_gpu_utilization(_ratio)?"}
PROMQL_WORDS = {
    *("by", "on", "and", "or", "unless", "group_left", "group_right", "without", "ignoring"),
    *("bool", "offset"),
}
SERIES = {name for metric in METRICS for name in series_names(metric)} | {"__name__"}
COUNTERS = {
    name
    for metric in METRICS
    if metric.kind in {"counter", "histogram"}
    for name in series_names(metric)
}
LABELS = {label_name(name) for metric in METRICS for name in metric.attributes} | {
    *(label_name(RUN_ID), label_name(RANK), "le"),
}
PROMQL = [query for query in queries() if query.language == "promql"]
EVERY_PAGE = pytest.mark.parametrize("uid", sorted(PAGES))
EVERY_QUERY = pytest.mark.parametrize("query", PROMQL, ids=lambda query: query.place)


def test_the_files_are_what_the_code_makes() -> None:
    """The committed JSON is generated: an edit by hand would be lost, a forgotten build is seen."""
    assert main(["--check"]) == 0
    written = {str(path.relative_to(TARGET)) for path in TARGET.rglob("*") if path.is_file()}
    assert written == set(make_files())


def test_there_are_six_pages_under_fixed_names() -> None:
    """Links of alerts and of people go by the uid."""
    assert set(PAGES) == DASHBOARD_UIDS
    assert {page["uid"] for page in PAGES.values()} == DASHBOARD_UIDS


@EVERY_PAGE
def test_no_page_is_tied_to_one_grafana(uid: str) -> None:
    """C146: each data source is a variable of the page; there is no numeric id and no input."""
    page = PAGES[uid]
    defined = {
        v["name"]: v["query"] for v in page["templating"]["list"] if v["type"] == "datasource"
    }
    assert defined == {"datasource": "prometheus", "traces": "tempo", "logs": "loki"}
    assert page.get("id") is None
    assert not [key for key in page if key.startswith("__")]
    used = [
        *(v["datasource"] for v in page["templating"]["list"] if v["type"] == "query"),
        *(note["datasource"] for note in page["annotations"]["list"]),
        *(panel["datasource"] for panel in panels(page) if panel["type"] not in WITHOUT_QUERY),
        *(t["datasource"] for panel in panels(page) for t in panel.get("targets", ())),
    ]
    for source in used:
        name = re.fullmatch(r"\$\{(\w+)\}", source["uid"])
        assert name is not None, source
        assert defined[name[1]] == source["type"]


@EVERY_PAGE
def test_every_panel_asks_a_question(uid: str) -> None:
    """A title is a question, the description says how to read the answer; none comes twice."""
    titles = [panel["title"] for panel in panels(PAGES[uid])]
    assert len(titles) == len(set(titles))
    for panel in panels(PAGES[uid]):
        assert panel["title"].endswith("?"), panel["title"]
        assert len(panel["description"]) > len(panel["title"]), panel["title"]
    assert PAGES[uid]["description"].endswith("?")


@EVERY_PAGE
def test_every_panel_has_a_unit_and_a_query(uid: str) -> None:
    """A number without a unit is a riddle; a panel without a query is an empty frame."""
    for panel in panels(PAGES[uid]):
        if panel["type"] in WITHOUT_QUERY:
            continue
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, panel["title"]
        assert panel["targets"], panel["title"]
        refs = [target["refId"] for target in panel["targets"]]
        assert len(refs) == len(set(refs)), panel["title"]


@EVERY_PAGE
def test_ratios_are_ratios_everywhere(uid: str) -> None:
    """C148: 0.4 is shown as 40 %: percentunit, and thresholds and axes not above 1."""
    for panel in panels(PAGES[uid]):
        defaults = panel["fieldConfig"]["defaults"]
        assert defaults.get("unit") != "percent", panel["title"]
        if defaults.get("unit") != "percentunit":
            continue
        assert defaults.get("max", 1) <= 1, panel["title"]
        assert all((s["value"] or 0) <= 1 for s in defaults["thresholds"]["steps"]), panel["title"]


def test_every_instrument_has_a_meaning() -> None:
    """C148: each metric has a description and, but for states and what has none, a unit."""
    for metric in METRICS:
        assert metric.description.endswith("."), metric.name
        assert metric.unit != "%", metric.name
        assert (metric.unit == "1") == metric.name.endswith(".ratio") or metric.name == (
            "hw.gpu.utilization"
        ), metric.name


@EVERY_PAGE
def test_panels_stand_side_by_side(uid: str) -> None:
    """No panel covers another, none sticks out, and lines are filled."""
    page = PAGES[uid]
    places = [panel["gridPos"] for panel in page["panels"]]
    for a, b in combinations(places, 2):
        apart = (
            a["x"] + a["w"] <= b["x"]
            or b["x"] + b["w"] <= a["x"]
            or a["y"] + a["h"] <= b["y"]
            or b["y"] + b["h"] <= a["y"]
        )
        assert apart, (a, b)
    for y in {place["y"] for place in places}:
        assert sum(place["w"] for place in places if place["y"] == y) == 24, f"line {y}"
    ids = [panel["id"] for panel in page["panels"]]
    assert len(ids) == len(set(ids))


@EVERY_PAGE
def test_pages_behave_alike(uid: str) -> None:
    """UTC, a shared crosshair, nothing to edit; links keep variables and time."""
    page = PAGES[uid]
    assert page["timezone"] == "utc"
    assert page["graphTooltip"] == 1
    assert page["editable"] is False
    (link,) = page["links"]
    assert link["tags"] == page["tags"] == ["costlens"]
    assert link["includeVars"]
    assert link["keepTime"]
    for variable in page["templating"]["list"]:
        if variable["type"] == "query":
            assert variable["refresh"] == 2, variable["name"]
    names = [variable["name"] for variable in page["templating"]["list"]]
    wanted = ["datasource", "traces", "logs", "team", "run", "rank"]
    assert names == (wanted[:-1] if uid == SETTINGS.dashboards.runs else wanted)


@EVERY_PAGE
def test_a_click_on_a_run_keeps_data_sources_and_time(uid: str) -> None:
    """Links in tables carry the run in the cell, the data sources and the time range."""
    for panel in panels(PAGES[uid]):
        for url in _link_urls(panel):
            assert re.match(rf"/d/({'|'.join(DASHBOARD_UIDS)})\?var-run=\$\{{__value", url), url
            assert "${__url_time_range}" in url
            assert all(
                f"${{{name}:queryparam}}" in url for name in ("datasource", "traces", "logs")
            )


def test_some_table_leads_to_a_run() -> None:
    """From the list of runs one click opens a run."""
    urls = [url for panel in panels(PAGES[SETTINGS.dashboards.runs]) for url in _link_urls(panel)]
    assert any(SETTINGS.dashboards.run in url for url in urls)


def _link_urls(panel: dict[str, Any]) -> list[str]:
    properties = [p for o in panel["fieldConfig"].get("overrides", ()) for p in o["properties"]]
    return [link["url"] for p in properties if p["id"] == "links" for link in p["value"]]


def test_lines_stand_where_alerts_fire() -> None:
    """A threshold of a panel is one that an alert is judged by: they cannot drift apart."""
    judged = set(re.findall(r"\$([a-z_]+)", " ".join(alert.expr for alert in ALERTS)))
    drawn = {panel.limit for page in DASHBOARDS for row in page.rows for panel in row.panels} - {""}
    assert drawn <= judged, drawn - judged
    known = {getattr(SETTINGS.thresholds, name) for name in SETTINGS.thresholds.__slots__}
    seen = {
        step["value"]
        for page in PAGES.values()
        for panel in panels(page)
        for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    } - {None}
    assert seen <= known
    assert len(seen) >= 10


@EVERY_QUERY
def test_names_and_labels_are_in_the_catalogue(query: Any) -> None:
    """C147: each series and each label of each query exists as a back-end will name it."""
    text = re.sub(r'"[^"]*"', '""', fill(query.text))
    for grouped in re.findall(r"(?:by|on|group_left|group_right) \(([^)]*)\)", text):
        assert {name.strip() for name in grouped.split(",")} - {""} <= LABELS, grouped
    text = re.sub(r"(?:by|on|group_left|group_right) \([^)]*\)", "", text)
    for matchers in re.findall(r"\{([^}]*)\}", text):
        assert set(re.findall(r"(\w+)\s*[=!]", matchers)) <= LABELS | {"__name__"}, matchers
    text = re.sub(r"\{[^}]*\}|\[[^\]]*\]", " ", text)
    named = set(re.findall(r"\b([a-z_]\w*)\b(?!\s*\()", text)) - PROMQL_WORDS
    assert named <= SERIES, named
    both = re.findall(r'__name__=~"([^"]*)"', query.text)
    assert set(both) <= SCRAPED_NAMES


@EVERY_QUERY
def test_counters_are_never_shown_as_they_are(query: Any) -> None:
    """A counter starts anew with each attempt: only its growth means anything."""
    for name in COUNTERS:
        for found in re.finditer(rf"\b{name}\b", query.text):
            assert re.search(r"(rate|increase)\($", query.text[: found.start()]), name


@EVERY_QUERY
def test_windows_are_grafanas(query: Any) -> None:
    """A fixed window is empty on one zoom level and blind on another."""
    windows = set(re.findall(r"\[([^\]]*)\]", query.text))
    assert windows <= {"$__rate_interval", "$__range", "$__range:1m"}
    if "rate(" in query.text:
        assert "rate(" not in re.sub(r"rate\([^\[]*\[\$__rate_interval\]\)", "", query.text)


@EVERY_QUERY
def test_queries_are_of_the_chosen_runs(query: Any) -> None:
    """A selector without a run would add up every run of the site."""
    for matchers in re.findall(r"(?<![(\w])\w*\{([^}]*)\}", query.text):
        chosen = "costlens_run_id" in matchers or "costlens_team" in matchers
        assert chosen or query.panel == "Which run makes tokens cheapest?", query.text


def test_histograms_show_exemplars() -> None:
    """A dot of a histogram opens the trace of that iteration."""
    for page in PAGES.values():
        for panel in panels(page):
            for target in panel.get("targets", ()):
                if "_bucket" in target.get("expr", ""):
                    assert target["exemplar"] is True, panel["title"]


def test_log_queries_use_grafanas_window() -> None:
    """LogQL counts over `$__auto`, which follows the zoom."""
    logs = [query for query in queries() if query.language == "logql"]
    assert logs
    for query in logs:
        assert set(re.findall(r"\[([^\]]*)\]", query.text)) <= {"$__auto"}
        assert "$run" in query.text


@pytest.mark.parametrize(
    ("metric", "matcher", "complaint"),
    [
        ("costlens.phase.tme", "", "no metric"),
        ("costlens.phase.time", 'costlens_phas="x"', "no label"),
        ("costlens.phase.time", 'costlens_phase="waiting"', "never"),
        ("costlens.phase.time", 'costlens_phase=~"forward|waiting"', "never"),
        ("costlens.phase.time", "costlens_phase", "no label matcher"),
    ],
)
def test_a_query_cannot_name_what_nobody_exports(metric: str, matcher: str, complaint: str) -> None:
    """A misspelt name fails when the page is built, not when somebody needs it."""
    with pytest.raises(ValueError, match=complaint):
        select(metric, matcher)


def test_one_selector_finds_both_names() -> None:
    """The only metric with two names is found under both."""
    found = select("hw.gpu.utilization", SETTINGS.run)
    assert found == '{__name__=~"hw_gpu_utilization(_ratio)?",costlens_run_id="$run"}'


def test_durations_are_written_as_promql_does() -> None:
    """Scaled windows stay durations that Prometheus reads."""
    written = [promql_duration(seconds) for seconds in (86400, 3600, 300, 90, 1.5, 0.0001)]
    assert written == ["1d", "1h", "5m", "90s", "1500ms", "1ms"]
