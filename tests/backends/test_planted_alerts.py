"""Planted faults in real trainings, judged by a real Prometheus, told by a real Alertmanager."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from grafana.alerts.catalogue import ALERTS
from grafana.alerts.files import alert_files
from grafana.alerts.render import render_rules
from tests.backends.short_windows import SHORT, WINDOW_S
from tests.fixtures_backends import (
    Alertmanager,
    Backends,
    Prometheus,
    Webhook,
    free_port,
    with_address,
)

SCRIPT = Path(__file__).parent / "job_faults.py"
LIMIT_S = 150.0
CALM_S = 8.0
"""How long nothing else may come after the last alert that must come."""

ENVIRON: dict[str, dict[str, str]] = {
    "over_budget": {"COSTLENS_BUDGET": "0.02", "COSTLENS_NODE_HOUR_PRICE": "36"},
}
EXPECTED: dict[str, set[str]] = {
    "healthy": set(),
    "ended": set(),
    "slow_dataset": {"CostlensDataBound"},
    "stalled": {"CostlensRunStalled"},
    "nan_loss": {"CostlensNonFiniteLoss"},
    "killed": {"CostlensTelemetryGone"},
    "dead_endpoint": {"CostlensExportFailing"},
    "over_budget": {"CostlensBudgetExceeded"},
    "failing_store": {"CostlensCheckpointFailing"},
    "straggler": {"CostlensStragglerRank"},
}


class Job:
    """One process of a training with a planted fault."""

    def __init__(self, kind: str, folder: Path, **environ: str) -> None:
        folder.mkdir(exist_ok=True)
        self.kind = kind
        self._errors = (folder / f"errors-{environ.get('RANK', '0')}").open("wb")
        checkout = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), kind, str(folder)],
            env={
                "PATH": os.defpath,
                "HOME": str(folder),
                "OMP_NUM_THREADS": "1",
                "COSTLENS_DIR": str(folder / "runs"),
                "COSTLENS_RUN_ID": kind,
                "COSTLENS_SUMMARY": "0",
                "COSTLENS_WINDOW_S": str(WINDOW_S),
                **checkout,
                **environ,
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def port(self) -> int:
        """Return the port of its metrics, once it has one."""
        assert self.process.stdout is not None
        word, number = self.process.stdout.readline().split()
        assert word == "PORT"
        return int(number)

    def tell_to_end(self) -> None:
        """Let its training end by itself."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def end(self) -> None:
        """End it, whatever it does."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self._errors):
            assert pipe is not None
            pipe.close()


@contextmanager
def all_jobs(folder: Path) -> Iterator[dict[str, list[Job]]]:
    """Start every kind of training at once; most of what they do is to sleep."""
    jobs: dict[str, list[Job]] = {}
    try:
        for kind in EXPECTED:
            environ = dict(ENVIRON.get(kind, {}))
            if kind == "dead_endpoint":
                address = f"http://127.0.0.1:{free_port()}/v1/traces"
                environ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] = address
            ranks = 2 if kind == "straggler" else 1
            if ranks > 1:
                environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
            jobs[kind] = [
                Job(kind, folder / kind, **environ, **_rank(number, ranks))
                for number in range(ranks)
            ]
        yield jobs
    finally:
        for job in (job for of_kind in jobs.values() for job in of_kind):
            job.end()


def _rank(number: int, ranks: int) -> dict[str, str]:
    if ranks == 1:
        return {}
    place = {"RANK": str(number), "LOCAL_RANK": str(number)}
    size = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
    return {**place, **size}


def quick_alertmanager(url: str) -> str:
    """Return the example of Alertmanager with a receiver of our own, told at once."""
    config = yaml.safe_load(with_address(alert_files()["alertmanager/costlens.yml"], url))

    def hurry(route: dict[str, Any]) -> None:
        route |= {"group_wait": "1s", "group_interval": "1s", "repeat_interval": "1h"}
        for child in route.get("routes", ()):
            hurry(child)

    hurry(config["route"])
    return yaml.safe_dump(config)


def _told(webhook: Webhook) -> dict[str, dict[str, Any]]:
    """Return the newest of each alert by run and name."""
    return {
        f"{alert['labels'].get('costlens_run_id')}/{alert['labels']['alertname']}": alert
        for _, alert in webhook.alerts
    }


def _by_run(told: Mapping[str, object]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {kind: set() for kind in EXPECTED}
    for key in told:
        run, _, name = key.partition("/")
        found.setdefault(run, set()).add(name)
    return found


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_each_fault_is_told_and_nothing_else(
    backends: Backends, webhook: Webhook, tmp_path: Path
) -> None:
    """Ten trainings, eight of them with a fault: the right alert for each, and only that one.

    Slow data, a stall, a failing store, a NaN loss, a straggler in a real data-parallel job, a
    killed process, a dead endpoint, a spent budget; beside a healthy run and one that ends well.
    """
    alertmanager = Alertmanager(tmp_path / "alertmanager", quick_alertmanager(webhook.url))
    with ExitStack() as stack:
        stack.enter_context(backends.run(alertmanager))
        prometheus = Prometheus(
            tmp_path / "prometheus",
            rules=render_rules(SHORT),
            alertmanager=alertmanager,
        )
        stack.enter_context(backends.run(prometheus))
        jobs = stack.enter_context(all_jobs(tmp_path))
        ports = {kind: [job.port() for job in of_kind] for kind, of_kind in jobs.items()}
        prometheus.scrape([port for of_kind in ports.values() for port in of_kind])
        _wait_until_all_train(prometheus)
        jobs["ended"][0].tell_to_end()
        jobs["killed"][0].process.kill()
        _wait_for(webhook, EXPECTED)
        time.sleep(CALM_S)
        assert _by_run(_told(webhook)) == EXPECTED
        assert prometheus.rule_errors() == {}
        assert jobs["ended"][0].process.poll() == 0
        _check_words(_told(webhook))
        _follow_the_runbook(prometheus)


def _wait_until_all_train(prometheus: Prometheus) -> None:
    deadline = time.monotonic() + LIMIT_S
    asked = "count by (costlens_run_id) (costlens_iterations_total > 20)"
    while {sample.labels["costlens_run_id"] for sample in prometheus.query(asked)} != {*EXPECTED}:
        assert time.monotonic() < deadline, prometheus.query(asked)
        time.sleep(0.5)


def _wait_for(webhook: Webhook, expected: Mapping[str, set[str]]) -> None:
    deadline = time.monotonic() + LIMIT_S
    wanted = {f"{run}/{name}" for run, names in expected.items() for name in names}
    while missing := wanted - _told(webhook).keys():
        assert time.monotonic() < deadline, f"not told: {missing}; told: {sorted(_told(webhook))}"
        time.sleep(0.5)


def _check_words(told: Mapping[str, Mapping[str, Any]]) -> None:
    """Check that what people read is whole: no gap in a sentence, and links that lead on."""
    severities = {alert.name: alert.severity for alert in ALERTS}
    for key, alert in told.items():
        labels, notes = alert["labels"], alert["annotations"]
        assert labels["severity"] == severities[labels["alertname"]], key
        assert notes["runbook_url"].endswith("#" + labels["alertname"].lower())
        assert labels["costlens_run_id"] in notes["summary"] + notes["dashboard_url"]
        for text in notes.values():
            assert "no value" not in text, key
            assert "{{" not in text, key
            assert "error expanding" not in text, key
    slow = told["straggler/CostlensStragglerRank"]
    assert (slow["labels"]["costlens_rank"], slow["labels"]["costlens_phase"]) == ("1", "forward")
    assert slow["labels"]["host_name"] in slow["annotations"]["description"]


def _follow_the_runbook(prometheus: Prometheus) -> None:
    """A newcomer finds the slow rank: the queries of the shipped section, one after the other."""
    runbook = (files("costlens") / "data" / "grafana" / "runbook.md").read_text("utf-8")
    (section,) = re.findall(
        r"^## CostlensStragglerRank$(.*?)^## ", runbook, re.MULTILINE | re.DOTALL
    )
    queries = re.findall(r"```promql\n(.*?)\n```", section, re.DOTALL)
    own, backward, excess, hosts = [
        prometheus.query(query.replace("$run", "straggler")) for query in queries
    ]
    assert own[0].labels["costlens_rank"] == "1", "the slow rank is on top"
    assert len(backward) == 2, "one row a rank: the phases it waits in are one"
    assert backward[-1].labels["costlens_rank"] == "1", "the slow rank has the shortest backward"
    assert backward[0].value > 2 * backward[-1].value, "the fast one waits there"
    worst = excess[0].labels
    assert (worst["costlens_rank"], worst["costlens_phase"]) == ("1", "forward")
    assert {sample.labels["costlens_rank"] for sample in hosts} == {"0", "1"}
