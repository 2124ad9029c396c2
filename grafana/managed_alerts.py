"""The alerts once more, for sites where Grafana itself evaluates them: the same entries, its form.

Grafana fires where the last expression is above 0: that is where the query has any result at all,
whatever its value. Recording rules stay Prometheus's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from grafana.alerts.catalogue import ALERTS
from grafana.alerts.model import AREAS, Alert
from grafana.alerts.render import annotate, fill
from grafana.settings import SETTINGS, promql_duration

__all__ = ["managed_alert_files"]

PATH = "provisioning/alerting/costlens.yaml"
_FOLDER = "costlens"
_QUERY, _HAS_RESULT, _CONDITION = "A", "B", "C"
# Of another data source than Grafana's own expressions nothing is asked.
_EXPRESSIONS = "__expr__"
_ANY_RESULT = "is_number(${0}) || is_nan(${0}) || is_inf(${0})"
_MAX_UID = 40


def managed_alert_files() -> dict[str, str]:
    """Return the text of the file by its path in the export."""
    groups = [_group(area) for area in AREAS]
    document = {"apiVersion": 1, "groups": groups}
    comment = (
        "# Made by grafana/build.py; do not edit.\n"
        "# For sites where Grafana evaluates the alerts; load it or the rules of Prometheus, not\n"
        "# both. The recording rules in prometheus/rules are needed either way.\n"
    )
    return {PATH: comment + yaml.safe_dump(document, sort_keys=False, width=1000)}


def _group(area: str) -> Mapping[str, Any]:
    return {
        "orgId": 1,
        "name": f"costlens-{area}",
        "folder": _FOLDER,
        "interval": promql_duration(SETTINGS.windows.evaluation_s),
        "rules": [_rule(alert) for alert in ALERTS if alert.area == area],
    }


def _rule(alert: Alert) -> Mapping[str, Any]:
    held_s = getattr(SETTINGS.windows, f"{alert.hold}_s") if alert.hold else 0
    uid = alert.name.lower()
    if len(uid) > _MAX_UID:
        raise ValueError(f"{uid} has {len(uid)} letters; a uid of Grafana has at most {_MAX_UID}")
    return {
        "uid": uid,
        "title": alert.name,
        "condition": _CONDITION,
        "data": [
            _data(_QUERY, SETTINGS.sources.prometheus, expr=fill(alert.expr), instant=True),
            _data(_HAS_RESULT, type="math", expression=_ANY_RESULT.format(_QUERY)),
            _data(
                _CONDITION,
                type="threshold",
                expression=_HAS_RESULT,
                conditions=[{"evaluator": {"type": "gt", "params": [0]}}],
            ),
        ],
        # No result is what a rule of Prometheus gives where all is well.
        "noDataState": "OK",
        "execErrState": "Error",
        "for": promql_duration(held_s) if held_s else "0s",
        "labels": {"severity": alert.severity, "area": alert.area},
        "annotations": {name: _translate(text) for name, text in annotate(alert).items()},
        "isPaused": False,
    }


def _translate(text: str) -> str:
    """Return a text of Prometheus in Grafana's words, without the ``$`` of its environment.

    Some releases fill every ``$name`` of a file in, others only ``${name}``; none may find one.
    """
    return text.replace("$labels.", ".Labels.").replace("$value", f".Values.{_QUERY}.Value")


def _data(ref: str, source: str = _EXPRESSIONS, **model: Any) -> Mapping[str, Any]:
    return {
        "refId": ref,
        # Instant queries look at the end alone; Grafana demands a range all the same.
        "relativeTimeRange": {"from": 600, "to": 0},
        "datasourceUid": source,
        "model": {"refId": ref, **model},
    }
