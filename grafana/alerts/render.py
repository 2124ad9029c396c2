"""Turns the entries into rule files of Prometheus and promtool tests.

Pure: entries and settings in, text out. ``grafana/build.py`` writes the files; tests render the
same entries with shorter windows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any
from urllib.parse import quote

import yaml

from costlens.core.phases import ITERATION_PHASES
from costlens.core.records import Outcome
from grafana.alerts.catalogue import ALERTS, GROUPS
from grafana.alerts.model import AREAS, Alert, Case, Series
from grafana.settings import SETTINGS, Settings, Thresholds, promql_duration

__all__ = [
    "GENERATED",
    "annotate",
    "fill",
    "render_rules",
    "render_tests",
    "scaled",
]

GENERATED = "made by python -m grafana.build; do not edit"

_LIVE = {Outcome.RUNNING, Outcome.LOST}
_WORDS = {
    "ended": "|".join(o.value for o in Outcome if o not in _LIVE),
    "iteration_phases": "|".join(phase.name.lower() for phase in ITERATION_PHASES),
}
_PLACEHOLDER = re.compile(r"\$([a-z][a-z_]*)")
_TEMPLATE_WORDS = frozenset({"labels", "value"})


def scaled(settings: Settings, factor: float) -> Settings:
    """Return settings whose times are shorter: windows, and thresholds that are times."""
    times = {
        f.name: getattr(settings.thresholds, f.name) * factor
        for f in fields(Thresholds)
        if f.name.endswith("_s")
    }
    return replace(
        settings,
        windows=settings.windows.scaled(factor),
        thresholds=replace(settings.thresholds, **times),
    )


def fill(text: str, settings: Settings = SETTINGS) -> str:
    """Return a text with windows, thresholds and lists in place of ``$name``.

    Raises:
        KeyError: The settings have nothing of that name.
    """
    known: dict[str, str] = {
        **_WORDS,
        "own_phases": "|".join(settings.own_phases),
        **{name: f"{value:g}" for name, value in asdict(settings.thresholds).items()},
    }
    for name, seconds in asdict(settings.windows).items():
        known |= {name: f"{seconds:g}", name.removesuffix("_s"): promql_duration(seconds)}

    def put(match: re.Match[str]) -> str:
        name = match[1]
        return match[0] if name in _TEMPLATE_WORDS else known[name]

    return _PLACEHOLDER.sub(put, text)


def annotate(alert: Alert, settings: Settings = SETTINGS) -> dict[str, str]:
    """Return what people read, and where the links of an alert lead."""
    links = settings.links
    found = {
        "summary": alert.summary,
        "description": alert.description,
        "runbook_url": f"{links.runbook_url}#{alert.name.lower()}",
        "dashboard_url": _dashboard_url(alert, settings),
    }
    if alert.traces:
        found["traces_url"] = _traces_url(alert, settings)
    return found


def _dashboard_url(alert: Alert, settings: Settings) -> str:
    uid = getattr(settings.dashboards, alert.dashboard)
    url = f"{settings.links.grafana_url}/d/{uid}"
    has_run = "costlens_run_id" in alert.summary
    return f"{url}?var-run={{{{ $labels.costlens_run_id | urlquery }}}}" if has_run else url


def _traces_url(alert: Alert, settings: Settings) -> str:
    pane = {
        "datasource": settings.sources.tempo,
        "queries": [{"refId": "A", "queryType": "traceql", "query": alert.traces}],
        "range": {"from": "now-1h", "to": "now"},
    }
    panes = quote(json.dumps({"costlens": pane}, separators=(",", ":")))
    run, rank = (f"{{{{ $labels.costlens_{name} | urlquery }}}}" for name in ("run_id", "rank"))
    panes = panes.replace("%24run", run).replace("%24rank", rank)
    return f"{settings.links.grafana_url}/explore?schemaVersion=1&panes={panes}"


class _Dumper(yaml.SafeDumper):
    """Writes what has several lines as a block."""


def _represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent)


def _dump(document: Mapping[str, Any]) -> str:
    text = yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=1000, allow_unicode=True)
    return f"# {GENERATED}.\n{text}"


def render_rules(settings: Settings = SETTINGS) -> dict[str, str]:
    """Return the rule files of Prometheus by their names."""
    interval = promql_duration(settings.windows.evaluation_s)
    recording = {
        "groups": [
            {
                "name": name,
                "interval": interval,
                "rules": [{"record": r.name, "expr": fill(r.expr, settings)} for r in recordings],
            }
            for name, recordings in GROUPS.items()
        ]
    }
    alerting = {
        "groups": [
            {
                "name": f"costlens-{area}",
                "interval": interval,
                "rules": [_rule(alert, settings) for alert in ALERTS if alert.area == area],
            }
            for area in AREAS
        ]
    }
    return {"costlens-recording.yaml": _dump(recording), "costlens-alerts.yaml": _dump(alerting)}


def _rule(alert: Alert, settings: Settings) -> dict[str, Any]:
    held = getattr(settings.windows, f"{alert.hold}_s") if alert.hold else 0
    return {
        "alert": alert.name,
        "expr": fill(alert.expr, settings),
        **({"for": promql_duration(held)} if held else {}),
        "labels": {"severity": alert.severity, "area": alert.area},
        "annotations": annotate(alert, settings),
    }


def render_tests(
    rule_files: Sequence[str],
    alerts: Iterable[Alert],
    quiet: Iterable[Case],
    settings: Settings = SETTINGS,
) -> str:
    """Return promtool tests.

    Args:
        rule_files: Paths of the rule files, as promtool finds them.
        alerts: Whose own cases are tested.
        quiet: What no alert at all may fire at.
        settings: Those that the rules were rendered with.
    """
    tests: list[dict[str, Any]] = []
    for alert in alerts:
        for case in alert.cases:
            expected = _expected(alert, case, settings)
            look = {"eval_time": case.at, "alertname": alert.name, "exp_alerts": expected}
            tests.append(_test(f"{alert.name}: {case.about}", case.series, [look]))
    for case in quiet:
        looks: list[dict[str, Any]] = [
            {"eval_time": at, "alertname": alert.name, "exp_alerts": []}
            for alert in ALERTS
            for at in ("10m", "24m", "50m")
        ]
        tests.append(_test(f"quiet: {case.about}", case.series, looks))
    return _dump(
        {
            "rule_files": list(rule_files),
            "evaluation_interval": "2m",
            "group_eval_order": list(GROUPS),
            "tests": tests,
        }
    )


def _test(name: str, series: Iterable[Series], looks: list[dict[str, Any]]) -> dict[str, Any]:
    # A case may replace what a whole rank brings: the last word on a series counts.
    held = [{"series": name, "values": values} for name, values in dict(series).items()]
    return {"name": name, "interval": "1m", "input_series": held, "alert_rule_test": looks}


def _expected(alert: Alert, case: Case, settings: Settings) -> list[dict[str, Any]]:
    if case.labels is None:
        return []
    labels = dict(case.labels)
    texts = {name: _put_labels(text, labels) for name, text in annotate(alert, settings).items()}
    return [
        {
            "exp_labels": {**labels, "severity": alert.severity, "area": alert.area},
            "exp_annotations": {**texts, "description": case.description},
        }
    ]


def _put_labels(text: str, labels: Mapping[str, str]) -> str:
    def put(match: re.Match[str]) -> str:
        return labels.get(match[1], "")

    return re.sub(r"\{\{ \$labels\.([a-z_]+)(?: \| urlquery)? \}\}", put, text)
