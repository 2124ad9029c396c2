"""Every rule has data in real back-ends: one that reads what nobody exports is silent for ever."""

from __future__ import annotations

import pytest

from grafana.alerts.catalogue import ALERTS, RECORDINGS
from tests.backends.demo_metrics import Demo, Demos, demos
from tests.fixtures_backends import Backends

__all__ = ["demos"]

ABSENT = {
    "CostlensStorageSlow": "the demo reads no files through run.filesystem",
    "CostlensTaskSlow": "compares with an hour ago",
    "CostlensCostPerTokenRegression": "compares with an hour ago",
    "CostlensHostMemoryLow": "needs a limit of the control group",
}
"""Alerts whose number needs what a demo has not; each has cases of its own in promtool."""


def _without_data(demo: Demo) -> dict[str, list[str]]:
    def has_data(expr: str) -> bool:
        return bool(demo.query(expr) or demo.query_after(expr))

    recorded = [r.name for r in RECORDINGS if not has_data(r.expr)]
    judged = [a.name for a in ALERTS if a.name not in ABSENT and not has_data(a.value)]
    return {"recorded": recorded, "judged": judged}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_rule_has_data(backends: Backends, demos: Demos) -> None:
    """C147: each recording rule and each judged number, pushed over OTLP and scraped alike."""
    assert _without_data(demos.prometheus) == {"recorded": [], "judged": []}
    assert _without_data(demos.victoria) == {"recorded": [], "judged": []}
    assert len(ABSENT) <= 10


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_healthy_demo_fires_nothing(backends: Backends, demos: Demos) -> None:
    """No condition of any alert is met while the demo trains."""
    for demo in (demos.prometheus, demos.victoria):
        fired = {a.name: demo.query(a.expr) for a in ALERTS}
        assert {name: samples for name, samples in fired.items() if samples} == {}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_one_name_for_utilization_on_both_paths(backends: Backends, demos: Demos) -> None:
    """C147, C148: OTLP and scrape give one series, a ratio, whatever the suffix was."""
    names = {"hw_gpu_utilization_ratio", "hw_gpu_utilization"}
    assert names & demos.victoria.server.names() == {"hw_gpu_utilization_ratio"}
    assert names & demos.prometheus.server.names() == {"hw_gpu_utilization"}
    for demo in (demos.victoria, demos.prometheus):
        samples = demo.query("gpu:hw_gpu_utilization:ratio")
        assert len({sample.labels["hw_id"] for sample in samples}) == 2
        assert all(0 < sample.value <= 1 for sample in samples)
