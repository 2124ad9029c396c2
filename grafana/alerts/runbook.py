"""Writes the runbook: a section for each alert, from its entry."""

from __future__ import annotations

from grafana.alerts.catalogue import ALERTS
from grafana.alerts.model import AREAS, Alert
from grafana.alerts.render import GENERATED
from grafana.settings import SETTINGS, Settings, promql_duration

__all__ = ["render_runbook"]

_INTRODUCTION = """\
# Runbook

What to do when an alert of costlens fires: what it means, the first three checks, and queries. In
the queries `$run` stands for the run's id and `$rank` for a rank; the alert's labels hold both. Its
annotations lead to the dashboard (`dashboard_url`), to the spans (`traces_url`) and back here.
Names with colons are made by the recording rules: no answer to one where all runs train means that
Prometheus has not loaded `prometheus/rules/`.

Only runs that train are judged: a run that starts, evaluates, saves or is over has no numbers in
the rules that judge its speed. `costlens report RUN` shows the same run without any back-end.
"""


def render_runbook(settings: Settings = SETTINGS) -> str:
    """Return the runbook: what is common to all alerts, then a section each."""
    lines = [f"<!-- {GENERATED}. -->", "", *_INTRODUCTION.splitlines(), ""]
    for area in AREAS:
        lines += [f"- **{area}**: " + ", ".join(_link(a) for a in ALERTS if a.area == area)]
    for alert in ALERTS:
        lines += ["", f"## {alert.name}", "", *_section(alert, settings)]
    return "\n".join(lines) + "\n"


def _link(alert: Alert) -> str:
    return f"[{alert.name}](#{alert.name.lower()})"


def _section(alert: Alert, settings: Settings) -> list[str]:
    held = getattr(settings.windows, f"{alert.hold}_s") if alert.hold else 0
    since = f", after {promql_duration(held)}" if held else ", at once"
    lines = [f"*{alert.severity}{since}.* {alert.meaning}", ""]
    lines += [f"{number}. {check}" for number, check in enumerate(alert.checks, start=1)]
    for query in alert.queries:
        lines += ["", f"{query.tells}:", "", f"```{query.language}", query.text, "```"]
    if alert.traces:
        lines += ["", "The spans in question:", "", "```traceql", alert.traces, "```"]
    return lines
