"""What the dashboards ask Tempo and Loki for is what real runs send."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import costlens
from grafana.alerts.catalogue import ALERTS
from tests.backends.page_data import COSTLENS
from tests.dashboards import queries
from tests.fixtures_otlp import OtlpReceiver

HERE = Path(__file__).parent
LIMIT_S = 100
TRACEQL = {
    *(query.text for query in queries() if query.language == "traceql"),
    *(alert.traces for alert in ALERTS if alert.traces),
}
LOGQL = {query.text for query in queries() if query.language == "logql"}


def run(arguments: list[str], environ: Mapping[str, str], folder: Path) -> int:
    """Return the exit code of a training."""
    folder.mkdir()
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(folder),
            "OMP_NUM_THREADS": "1",
            "COSTLENS_WINDOW_S": "0.5",
            "COSTLENS_TRACE_PERIOD_S": "2",
            "COSTLENS_GPU_HOUR_PRICE": "2.5",
            "COSTLENS_CHECKPOINT_URL": str(folder / "checkpoints"),
            **{key: os.environ[key] for key in ("PYTHONPATH",) if key in os.environ},
            **environ,
        },
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
    ).returncode


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_spans_and_their_attributes_exist(otlp_receiver: OtlpReceiver, tmp_path: Path) -> None:
    """Each name and attribute of each TraceQL query is on a span that real trainings sent."""
    environ = {
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{otlp_receiver.endpoint}/v1/traces",
        "COSTLENS_JOB_ELIGIBLE_TIME": "1700000000",
        "COSTLENS_JOB_START_TIME": "1700000060",
    }
    demo = ["-c", COSTLENS, "demo", "--fake-gpus", "1", "--max-steps", "60"]
    assert run(demo, environ, tmp_path / "demo") == 0
    assert run([str(HERE / "job_failing.py")], environ, tmp_path / "failing") == 1
    spans = otlp_receiver.spans()
    names = {span.proto.name for span in spans}
    attributes = {name for span in spans for name in span.attributes}
    for query in TRACEQL:
        for pattern in re.findall(r'\bname =~? "([^"]+)"', query):
            for alternative in pattern.split("|"):
                assert any(re.fullmatch(alternative, name) for name in names), (alternative, query)
        asked = set(re.findall(r"\bspan\.([\w.]+)", query))
        assert asked <= attributes, (asked - attributes, query)
    reasons = {span.attributes.get("costlens.reason") for span in spans}
    assert set(re.findall(r'costlens\.reason = "(\w+)"', " ".join(TRACEQL))) <= reasons


def test_events_exist() -> None:
    """Each event that a LogQL query names is one that costlens logs."""
    package = Path(costlens.__file__).parent
    source = "\n".join(path.read_text("utf-8") for path in package.rglob("*.py"))
    events = set(re.findall(r'"(costlens\.[a-z_.]+)"', source))
    patterns = re.findall(r'event_name=~"([^"]+)"', " ".join(LOGQL))
    assert patterns
    for alternative in "|".join(patterns).split("|"):
        assert any(re.fullmatch(alternative, event) for event in events), alternative
