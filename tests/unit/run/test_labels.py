"""What a run's money is allocated by, from the settings to records and telemetry."""

from __future__ import annotations

import pytest

import costlens
from costlens.core.records import LABELS
from costlens.export.otel_endpoint import build_resource
from costlens.export.readings import LABEL_ATTRIBUTES, label_attributes, run_info
from tests.unit.export.rehearsal import complete


def test_labels_of_settings_stand_in_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments go before variables; what nobody named is absent, not empty."""
    monkeypatch.setenv("COSTLENS_PROJECT", "search")
    monkeypatch.setenv("COSTLENS_EXPERIMENT_VERSION", "7")
    monkeypatch.setenv("COSTLENS_TEAM", "of the environment")
    with costlens.start(team="ranking", dataset_version="2026-01", summary=False) as run:
        pass
    record = run.finish()
    assert record is not None
    assert record.run.labels() == {
        "project": "search",
        "team": "ranking",
        "experiment_version": "7",
        "dataset_version": "2026-01",
    }
    assert record.run.model is None


def test_labels_are_attributes_of_the_info_metric_and_of_the_resource() -> None:
    """Grafana joins any series with `costlens_run_info` to group it by team or project."""
    run = complete()
    given = dict.fromkeys(LABELS, "x")
    run.state.run = run.state.run.model_copy(update=given)
    ((attributes, _),) = run_info(run.look())
    assert {attributes[LABEL_ATTRIBUTES[name]] for name in LABELS} == {"x"}
    resource = build_resource("run", 1, 0, label_attributes(run.state.run)).attributes
    assert resource["costlens.experiment.version"] == "x"
    assert resource["costlens.dataset.version"] == "x"
