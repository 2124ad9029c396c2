"""Files from which Grafana sets itself up: data sources that lead to one another, and dashboards.

Addresses come from Grafana's own environment. ``$`` is doubled where Grafana must not fill in a
variable of its environment.
"""

from __future__ import annotations

from typing import Any

import yaml

from grafana.names import select
from grafana.settings import SETTINGS, promql_duration

__all__ = ["provisioning_files"]

_FOLDER = "costlens"
_WHERE = "/etc/grafana/provisioning/dashboards/costlens"
_SOURCES = SETTINGS.sources
_TAGS = "$$__tags"
_RATE = "[$$__rate_interval]"

# A trace covers a minute, a metric is sent every ten seconds: five minutes around it are enough.
_BEFORE, _AFTER = "-5m", "5m"

_RUN_OF_SPAN = '$${__span.tags["costlens.run.id"]}'
_RANK_OF_SPAN = '$${__span.tags["costlens.rank"]}'


def provisioning_files() -> dict[str, str]:
    """Return the text of each file by its path in the export."""
    return {
        "provisioning/datasources/costlens.yaml": _write(
            _data_sources(),
            "Data sources that lead from a dot on a graph to its trace, from there to logs and",
            "metrics of the same run and rank, and from a log line to its trace. Grafana fills in",
            "PROMETHEUS_URL, TEMPO_URL and LOKI_URL from its own environment.",
        ),
        "provisioning/dashboards/costlens.yaml": _write(
            _provider(), f"Grafana reads the dashboards from {_WHERE}."
        ),
    }


def _write(document: Any, *comment: str) -> str:
    lines = [f"# {line}\n" for line in ("Made by grafana/build.py; do not edit.", *comment)]
    text: str = yaml.safe_dump(document, sort_keys=False, width=1000, allow_unicode=True)
    return "".join(lines) + text


def _provider() -> dict[str, Any]:
    provider = {
        "name": "costlens",
        "orgId": 1,
        "folder": _FOLDER,
        "folderUid": _FOLDER,
        "type": "file",
        "disableDeletion": True,
        "allowUiUpdates": False,
        "updateIntervalSeconds": 60,
        "options": {"path": _WHERE, "foldersFromFilesStructure": False},
    }
    return {"apiVersion": 1, "providers": [provider]}


def _data_sources() -> dict[str, Any]:
    return {"apiVersion": 1, "datasources": [_prometheus(), _tempo(), _loki()]}


def _prometheus() -> dict[str, Any]:
    return {
        "name": "costlens metrics",
        "uid": _SOURCES.prometheus,
        "type": "prometheus",
        "access": "proxy",
        "url": "${PROMETHEUS_URL}",
        "jsonData": {
            "httpMethod": "POST",
            "timeInterval": promql_duration(SETTINGS.export_s),
            "exemplarTraceIdDestinations": [
                {"name": "trace_id", "datasourceUid": _SOURCES.tempo},
            ],
        },
    }


def _tempo() -> dict[str, Any]:
    shifts = {"spanStartTimeShift": _BEFORE, "spanEndTimeShift": _AFTER}
    return {
        "name": "costlens traces",
        "uid": _SOURCES.tempo,
        "type": "tempo",
        "access": "proxy",
        "url": "${TEMPO_URL}",
        "jsonData": {
            "tracesToMetrics": {
                "datasourceUid": _SOURCES.prometheus,
                **shifts,
                "tags": _tags(),
                "queries": [{"name": name, "query": query} for name, query in _metrics_of_span()],
            },
            "tracesToLogsV2": {
                "datasourceUid": _SOURCES.loki,
                **shifts,
                "tags": _tags(),
                "filterByTraceID": False,
                "filterBySpanID": False,
                # Run and rank are no index labels in Loki, where the usual query would look.
                "customQuery": True,
                "query": f'{{service_name=~".+"}} | costlens_run_id="{_RUN_OF_SPAN}" '
                f'| costlens_rank="{_RANK_OF_SPAN}"',
            },
            "spanBar": {"type": "Tag", "tag": "costlens.rank"},
            "nodeGraph": {"enabled": False},
        },
    }


def _tags() -> list[dict[str, str]]:
    """Return which label of metrics each attribute of a span is."""
    return [
        {"key": "costlens.run.id", "value": "costlens_run_id"},
        {"key": "costlens.rank", "value": "costlens_rank"},
    ]


def _metrics_of_span() -> list[tuple[str, str]]:
    buckets = f"rate({_of_span('costlens.iteration.duration', part='bucket')}{_RATE})"
    phases = f"rate({_of_span('costlens.phase.time')}{_RATE})"
    return [
        ("99th percentile of iterations", f"histogram_quantile(0.99, sum by (le) ({buckets}))"),
        (
            "time by phase",
            f"sum by (costlens_phase) ({phases}) / on () group_left () sum({phases})",
        ),
        ("GPU utilization", f"avg by (hw_id) ({_of_span('hw.gpu.utilization')})"),
        (
            "money per hour",
            f"sum by (costlens_cost_currency) ({_of_span('costlens.cost.rate')})",
        ),
    ]


def _of_span(metric: str, part: str = "") -> str:
    name = select(metric, part=part)
    return f"{name.removesuffix('}')},{_TAGS}}}" if name.endswith("}") else f"{name}{{{_TAGS}}}"


def _loki() -> dict[str, Any]:
    return {
        "name": "costlens logs",
        "uid": _SOURCES.loki,
        "type": "loki",
        "access": "proxy",
        "url": "${LOKI_URL}",
        "jsonData": {
            "derivedFields": [
                {
                    "name": "trace",
                    "matcherType": "label",
                    "matcherRegex": "trace_id",
                    "url": "$${__value.raw}",
                    "datasourceUid": _SOURCES.tempo,
                    "urlDisplayLabel": "Open the trace",
                }
            ]
        },
    }
