"""The configurations of integrations/local-stack, judged by the tools of Prometheus itself."""

from __future__ import annotations

from pathlib import Path

import yaml

from costlens.cli.grafana import read_files
from tests.fixtures_backends import Backends

STACK = Path(__file__).parents[2] / "integrations" / "local-stack"
RULES = "/etc/prometheus/rules/"


def test_prometheus_takes_its_configuration_and_the_rules(backends: Backends) -> None:
    """Promtool finds no mistake in the file, nor in the rules that the stack mounts for it."""
    config = yaml.safe_load((STACK / "prometheus.yaml").read_text("utf-8"))
    # Debian's release is older than this section, and built without what it is about.
    otlp = config.pop("otlp")
    assert otlp == {"translation_strategy": "UnderscoreEscapingWithSuffixes"}
    assert config["rule_files"] == [f"{RULES}*.yaml"]
    rules = {name: text for name, text in read_files().items() if name.startswith("prometheus/")}
    assert rules
    for name, text in rules.items():
        (backends.folder / Path(name).name).write_text(text, encoding="utf-8")
    config["rule_files"] = [Path(name).name for name in rules]
    (backends.folder / "prometheus.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    said = backends.promtool("check", "config", "prometheus.yaml")
    assert f"{len(rules)} rule files found" in said


def test_alertmanager_takes_its_configuration(backends: Backends) -> None:
    """Amtool finds no mistake."""
    said = backends.amtool("check-config", STACK / "alertmanager.yaml")
    assert "SUCCESS" in said
