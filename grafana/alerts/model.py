"""What an alert is: its condition, its words, its section of the runbook and its tests, as data.

Text of PromQL holds ``$name``: a window of ``grafana/settings.py`` as a duration (``[$rate]``), or
a threshold as a number (``> $data_wait_ratio``); ``render.py`` puts them in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "AREAS",
    "RANK",
    "RUN",
    "Alert",
    "Area",
    "Case",
    "Query",
    "Recording",
    "Series",
    "Severity",
]

Severity = Literal["critical", "warning", "info"]
Area = Literal["run", "bottleneck", "hardware", "checkpoint", "model", "money", "telemetry"]
AREAS: tuple[Area, ...] = (
    *("run", "bottleneck", "hardware", "checkpoint", "model", "money", "telemetry"),
)

RUN = "{{ $labels.costlens_run_id }}"
RANK = "{{ $labels.costlens_rank }}"

Series = tuple[str, str]
"""A series of a promtool test, and its values in promtool's notation, one a minute."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A series that rules and panels share.

    Args:
        name: ``level:metric:operation``, as Prometheus's own rules are named.
        expr: What it is.
        why: What it is for, and what it leaves out.
    """

    name: str
    expr: str
    why: str


@dataclass(frozen=True, slots=True)
class Query:
    """A query of the runbook.

    Args:
        tells: What it answers.
        language: Which back-end it is for.
        text: The query; ``$run`` stands for the run's id and ``$rank`` for a rank.
    """

    tells: str
    language: Literal["promql", "traceql", "logql"]
    text: str


@dataclass(frozen=True, slots=True)
class Case:
    """A promtool test of one alert.

    Args:
        about: What is the case.
        series: What the back-end holds.
        at: When it is looked at, as promtool writes a time.
        labels: Labels of the alert that fires, without those that every alert has; None where none
            may fire.
        description: What people read then; the numbers are part of it.
    """

    about: str
    series: tuple[Series, ...]
    at: str = "50m"
    labels: Mapping[str, str] | None = None
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert.

    Args:
        name: Its name; ``#`` and the name in lower case lead to its section of the runbook.
        area: What it is about; Alertmanager routes and inhibits by it.
        severity: critical wakes somebody, warning waits for the morning, info is for a look.
        value: PromQL of the number that is judged, with the labels of the alert.
        bound: What it is compared with.
        scope: For whom it holds, as further operators (``and on …``, ``unless on …``).
        hold: Window for which it must hold; empty for none.
        summary: One sentence; labels only.
        description: The numbers, and what they mean.
        dashboard: Field of ``settings.Dashboards`` where to look.
        traces: TraceQL of a search for the spans; empty where none can tell.
        meaning: Runbook: what it means and what it costs.
        checks: Runbook: the first three checks.
        queries: Runbook: queries that tell more.
        cases: Tests: when it fires and when it does not.
    """

    name: str
    area: Area
    severity: Severity
    value: str
    bound: str
    scope: str = ""
    hold: str = ""
    summary: str
    description: str
    dashboard: str
    traces: str = ""
    meaning: str
    checks: tuple[str, str, str]
    queries: tuple[Query, ...]
    cases: tuple[Case, ...] = ()

    @property
    def expr(self) -> str:
        """Return the whole condition."""
        judged = f"({self.value}) {self.bound}" if self.bound else self.value
        return f"{judged}\n{self.scope}".strip()
