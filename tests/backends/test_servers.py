"""The back-ends themselves, as the other tests use them."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from pathlib import Path

from tests.fixtures_backends import (
    Alertmanager,
    Backends,
    Prometheus,
    VictoriaMetrics,
    Webhook,
    with_address,
)

RUN = """
import costlens, time
with costlens.start("whole", node_hour_price=3, window_s=0.2, summary=False) as run:
    for _ in range(40):
        with run.iteration(samples=4, tokens=100):
            time.sleep(0.01)
"""
RULE = """
groups:
  - name: one
    interval: 200ms
    rules:
      - alert: Always
        expr: vector(7) > 1
        labels: {severity: critical, costlens_run_id: r}
        annotations: {summary: "it is {{ $value }}"}
"""
ROUTE = """
route: {receiver: here, group_wait: 100ms, group_interval: 100ms}
receivers: [{name: here, webhook_configs: [{url: "http://127.0.0.1:1/told"}]}]
"""


def test_victoria_metrics_takes_a_run_over_otlp(backends: Backends, tmp_path: Path) -> None:
    """A whole run of its own process is found under Prometheus's names, with its labels."""
    victoria = VictoriaMetrics(tmp_path / "victoria")
    with backends.run(victoria):
        done = subprocess.run(
            [sys.executable, "-c", RUN],
            env={
                "PATH": "/usr/bin:/bin",
                "COSTLENS_DIR": str(tmp_path / "runs"),
                "COSTLENS_RUN_ID": "pushed",
                "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": victoria.otlp_metrics_endpoint,
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        victoria.flush()
        run = '{costlens_run_id="pushed",costlens_rank="0"}'
        assert victoria.value(f"max(costlens_iterations_total{run})") == 40
        assert victoria.value(f"max(costlens_samples_total{run})") == 160
        assert math.isnan(victoria.value("costlens_no_such_metric"))
        assert "costlens_iteration_duration_seconds_bucket" in victoria.names()


def test_an_alert_goes_from_prometheus_to_the_webhook(
    backends: Backends, webhook: Webhook, tmp_path: Path
) -> None:
    """Prometheus evaluates, Alertmanager routes, the webhook is told, with the words filled in."""
    alertmanager = Alertmanager(tmp_path / "alertmanager", with_address(ROUTE, webhook.url))
    with backends.run(alertmanager):
        prometheus = Prometheus(
            tmp_path / "prometheus", rules={"rule.yaml": RULE}, alertmanager=alertmanager
        )
        with backends.run(prometheus):
            deadline = time.monotonic() + 30
            while not webhook.alerts and time.monotonic() < deadline:
                time.sleep(0.1)
            assert prometheus.rule_errors() == {}
    receiver, alert = webhook.alerts[0]
    assert receiver == "told"
    assert alert["labels"]["alertname"] == "Always"
    assert alert["annotations"]["summary"] == "it is 7"
