"""Rules, runbook and links of the alerts are understood by the grammars of their languages."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from grafana.alerts.catalogue import ALERTS, RECORDINGS
from grafana.alerts.render import fill
from tests.grammars.grammars import complaints, missing


@pytest.fixture(autouse=True)
def _needs_grammars(require: Callable[[str, bool, str], None]) -> None:
    require("grammars", not missing(), missing())


def _of_a_run(text: str) -> str:
    return text.replace("$run", "run-a").replace("$rank", "3")


def test_every_query_of_the_alerts_is_understood() -> None:
    """PromQL of the rules, and what the runbook and the links ask of Tempo, Loki, Prometheus."""
    asked = {recording.name: ("promql", fill(recording.expr)) for recording in RECORDINGS}
    for alert in ALERTS:
        asked[alert.name] = ("promql", fill(alert.expr))
        if alert.traces:
            asked[f"{alert.name}: traces"] = ("traceql", _of_a_run(alert.traces))
        for query in alert.queries:
            asked[f"{alert.name}: {query.tells}"] = (query.language, _of_a_run(query.text))
    found = complaints([*asked.values()])
    wrong = {name: said for name, said in zip(asked, found, strict=True) if said}
    assert not wrong
    assert {language for language, _ in asked.values()} == {"promql", "logql", "traceql"}
