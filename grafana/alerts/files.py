"""The files that come from the alerts, by their path in ``costlens grafana export``."""

from __future__ import annotations

from pathlib import Path

from grafana.alerts.render import render_rules
from grafana.alerts.runbook import render_runbook

__all__ = ["alert_files"]

_EXAMPLE = Path(__file__).parent / "alertmanager.yml"


def alert_files() -> dict[str, str]:
    """Return the text of every file: rules, the runbook, and Alertmanager's example."""
    rules = {f"prometheus/rules/{name}": text for name, text in render_rules().items()}
    return {
        **rules,
        "alertmanager/costlens.yml": _EXAMPLE.read_text(encoding="utf-8"),
        "runbook.md": render_runbook(),
    }
