"""The rules in the real tools: promtool checks and tests them, amtool checks the example."""

from __future__ import annotations

from pathlib import Path

import pytest

from grafana.alerts.catalogue import ALERTS
from grafana.alerts.files import alert_files
from grafana.alerts.model import AREAS
from grafana.alerts.render import render_rules, render_tests
from grafana.alerts.situations import QUIET
from tests.fixtures_backends import Backends


def _write_rules(folder: Path) -> list[str]:
    for name, text in render_rules().items():
        (folder / name).write_text(text, encoding="utf-8")
    return sorted(render_rules())


def test_promtool_has_nothing_to_say_against_the_rules(backends: Backends, tmp_path: Path) -> None:
    """Every rule parses, none is there twice, and none trips any of promtool's lints."""
    names = _write_rules(tmp_path)
    assert "SUCCESS" in backends.promtool("check", "rules", "--lint=all", "--lint-fatal", *names)


@pytest.mark.slow
@pytest.mark.parametrize("area", AREAS)
def test_alerts_fire_when_they_should_and_not_otherwise(
    backends: Backends, tmp_path: Path, area: str
) -> None:
    """Each alert in its own cases; what people read is compared word for word."""
    tests = tmp_path / "tests.yaml"
    alerts = [alert for alert in ALERTS if alert.area == area]
    tests.write_text(render_tests(_write_rules(tmp_path), alerts, ()), encoding="utf-8")
    assert "SUCCESS" in backends.promtool("test", "rules", tests)


@pytest.mark.slow
def test_no_alert_fires_at_what_is_none_of_its_business(backends: Backends, tmp_path: Path) -> None:
    """All alerts in every quiet situation.

    Start-up, validation, a save, an ended run, no data, a counter born at 1, a run without the
    signal.
    """
    tests = tmp_path / "tests.yaml"
    tests.write_text(render_tests(_write_rules(tmp_path), (), QUIET), encoding="utf-8")
    assert "SUCCESS" in backends.promtool("test", "rules", tests)


def test_a_case_that_is_wrong_is_found(backends: Backends, tmp_path: Path) -> None:
    """The tests can fail: with the condition of one alert turned round, promtool says so."""
    names = _write_rules(tmp_path)
    rules = tmp_path / "costlens-alerts.yaml"
    text = rules.read_text(encoding="utf-8")
    turned = text.replace(">= 1\n", "< 1\n")
    assert turned != text
    rules.write_text(turned, encoding="utf-8")
    alerts = [alert for alert in ALERTS if alert.name == "CostlensBudgetExceeded"]
    tests = tmp_path / "tests.yaml"
    tests.write_text(render_tests(names, alerts, ()), encoding="utf-8")
    with pytest.raises(AssertionError, match="CostlensBudgetExceeded"):
        backends.promtool("test", "rules", tests)


def test_each_alert_has_a_case_that_fires_and_one_that_does_not() -> None:
    """No alert is trusted that was never seen to fire, or never seen not to."""
    for alert in ALERTS:
        fires = {case.labels is not None for case in alert.cases}
        assert fires == {True, False}, alert.name


def test_amtool_accepts_the_example(backends: Backends, tmp_path: Path) -> None:
    """The example of Alertmanager is valid, and routes what wakes people apart from the rest."""
    config = tmp_path / "alertmanager.yml"
    config.write_text(alert_files()["alertmanager/costlens.yml"], encoding="utf-8")
    assert "SUCCESS" in backends.amtool("check-config", config)

    def route(*labels: str) -> str:
        told = backends.amtool("config", "routes", "test", f"--config.file={config}", *labels)
        return told.splitlines()[0].strip()

    assert route("severity=critical", "area=money") == "on-call"
    assert route("severity=warning", "area=money") == "budget"
    assert route("severity=warning", "area=telemetry") == "digest"
    assert route("severity=warning", "area=bottleneck") == "team"
    assert route("severity=info", "area=hardware") == "digest"
