"""Every rule has data in real back-ends: one that reads what nobody exports is silent for ever."""

from __future__ import annotations

import pytest

from grafana.alerts.catalogue import ALERTS, RECORDINGS
from tests.backends.demo_metrics import RUN_ID, Demo, Demos, demos
from tests.fixtures_backends import Backends

__all__ = ["demos"]

ABSENT = {
    "CostlensHostMemoryLow": ("container_memory", "a limit of the control group"),
}
"""Alerts whose number needs what a machine of a test lacks: the metric, and what it takes."""
ELSEWHERE = {"CostlensStorageSlow"}
"""Alerts about reads that are counted: test_dashboards_have_data has a run that reads."""
NO_DATA_IN_RUNBOOK = {
    *("costlens_loader_", "costlens_dataset_", "process_memory_", "costlens_grad_norm"),
    *("costlens_learning_rate", "costlens_precision_", "_checkpoint_interval_"),
    'costlens_state="failed"',
}
"""Metrics of runbook queries that a demo on a CPU, or one that is scraped, has not."""


NOISY = {"CostlensCostPerTokenRegression", "CostlensTaskSlow"}
"""They compare with an hour ago, which is four seconds ago here: a number, but no judgement."""


def _without_data(demo: Demo) -> dict[str, list[str]]:
    recorded = [r.name for r in RECORDINGS if not demo.has_data(r.expr)]
    left_out = ABSENT.keys() | ELSEWHERE
    judged = [a.name for a in ALERTS if a.name not in left_out and not demo.has_data(a.value)]
    return {"recorded": recorded, "judged": judged}


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_every_rule_has_data(backends: Backends, demos: Demos) -> None:
    """C147: each recording rule and each judged number, pushed over OTLP and scraped alike."""
    assert _without_data(demos.prometheus) == {"recorded": [], "judged": []}
    assert _without_data(demos.victoria) == {"recorded": [], "judged": []}


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_a_healthy_demo_fires_nothing(backends: Backends, demos: Demos) -> None:
    """No condition of any alert is met while the demo trains."""
    judged = [alert for alert in ALERTS if alert.name not in NOISY]
    for demo in (demos.prometheus, demos.victoria):
        fired = {alert.name: demo.query(alert.expr) for alert in judged}
        assert {name: samples for name, samples in fired.items() if samples} == {}


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_one_name_for_utilization_on_both_paths(backends: Backends, demos: Demos) -> None:
    """C147, C148: OTLP and scrape give one series, a ratio, whatever the suffix was."""
    names = {"hw_gpu_utilization_ratio", "hw_gpu_utilization"}
    assert names & demos.victoria.server.names() == {"hw_gpu_utilization_ratio"}
    assert names & demos.prometheus.server.names() == {"hw_gpu_utilization"}
    for demo in (demos.victoria, demos.prometheus):
        samples = demo.query("gpu:hw_gpu_utilization:ratio")
        assert len({sample.labels["hw_id"] for sample in samples}) == 2
        assert all(0 < sample.value <= 1 for sample in samples)


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_the_runbooks_queries_have_data(backends: Backends, demos: Demos) -> None:
    """Whoever follows the runbook is shown something: each query has data, or says why not."""
    empty = {
        f"{alert.name}: {query.tells}": query.text
        for alert in ALERTS
        for query in alert.queries
        if query.language == "promql"
        and not any(
            demo.has_data(query.text.replace("$run", RUN_ID))
            for demo in (demos.prometheus, demos.victoria)
        )
    }
    unknown = {
        name: text
        for name, text in empty.items()
        if not any(metric in text for metric in NO_DATA_IN_RUNBOOK)
    }
    assert unknown == {}
