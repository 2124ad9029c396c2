"""Whole runs in processes of their own, from the first iteration to a real OTLP receiver."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from costlens.core.records import RankRecord
from costlens.export.catalog import METRICS
from tests.fixtures_otlp import OtlpReceiver

PLAIN = """
import costlens, sys, time
run = costlens.start("whole", node_hour_price=3, window_s=0.2, trace_period_s=1.0)
for step in range(60):
    with run.iteration(samples=4, tokens=100, slots=128) as iteration:
        time.sleep(0.01)
        iteration.log(loss=1 / (step + 1))
    if step == 30:
        with run.phase("validation"):
            time.sleep(0.02)
run.finish()
"""

LIGHTNING = """
import sys, warnings
warnings.simplefilter("ignore")
import torch, pytorch_lightning as pl
from costlens.lightning import CostLensCallback
class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(8, 1)
    def training_step(self, batch, batch_idx):
        loss = self.net(batch).square().mean()
        self.log("loss", loss)
        return loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
trainer = pl.Trainer(
    accelerator="cpu", max_steps=20, callbacks=[CostLensCallback("whole")], logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
)
loader = torch.utils.data.DataLoader(torch.randn(64, 8), batch_size=4)
trainer.fit(Net(), loader)
trainer.fit_loop.epoch_loop.max_steps = 30
trainer.fit(Net(), loader)
"""


def _run(script: str, folder: Path, **environ: str) -> tuple[RankRecord, str]:
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={
            "PATH": "/usr/bin:/bin",
            "OMP_NUM_THREADS": "1",
            "COSTLENS_DIR": str(folder),
            "COSTLENS_SUMMARY": "0",
            **environ,
        },
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("*/record-*.json")
    return RankRecord.model_validate_json(path.read_bytes()), done.stderr


def _newest(receiver: OtlpReceiver, name: str, **attributes: Any) -> float:
    points = [
        point
        for point in receiver.points(name)
        if all(point.attributes.get("costlens." + key) == to for key, to in attributes.items())
    ]
    assert points, name
    newest = max(points, key=lambda point: point.proto.time_unix_nano)
    return float(newest.proto.as_int or newest.proto.as_double)


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_a_plain_run_arrives_whole(
    otlp_receiver: OtlpReceiver, tmp_path: Path, protocol: str
) -> None:
    """Record, metrics and traces of one run tell the same numbers, and nothing was lost."""
    port = otlp_receiver.grpc_port if protocol == "grpc" else otlp_receiver.http_port
    record, stderr = _run(
        PLAIN,
        tmp_path,
        OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{port}",
        OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
        OTEL_LOGS_EXPORTER="otlp",
    )
    assert record.telemetry.faults == {}
    health = record.telemetry.exports
    assert health["traces"].exports_ok > 0
    assert health["metrics"].exports_ok > 2
    assert sum(part.exports_failed + part.items_dropped for part in health.values()) == 0
    assert _newest(otlp_receiver, "costlens.iterations") == 60
    assert _newest(otlp_receiver, "costlens.samples") == 240
    for phase, ns in record.time_ns.items():
        if ns:
            seconds = _newest(otlp_receiver, "costlens.phase.time", phase=phase)
            if phase == "shutdown":  # the record has the flush, too, which no export can carry
                assert 0 < seconds <= ns / 1e9
            else:
                assert seconds == pytest.approx(ns / 1e9, abs=1e-6), phase
    spans = otlp_receiver.spans()
    names = {span.proto.name for span in spans}
    assert {"costlens.run", "costlens.period", "costlens.rank.period", "costlens.run.end"} <= names
    (end,) = [span for span in spans if span.proto.name == "costlens.run.end"]
    assert "completed" in end.attributes.values()
    assert record.run.id in str(end.attributes) + str(end.resource)
    assert all(json.loads(line)["run_id"] == record.run.id for line in stderr.splitlines())


def test_a_second_fit_goes_on_in_the_same_series(
    otlp_receiver: OtlpReceiver, tmp_path: Path
) -> None:
    """Two fits with one callback: one marker, counters that never go back, one record."""
    record, _ = _run(LIGHTNING, tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=otlp_receiver.endpoint)
    assert record.progress.iterations == 30
    assert record.telemetry.faults == {}
    points = sorted(
        otlp_receiver.points("costlens.iterations"), key=lambda point: point.proto.time_unix_nano
    )
    values = [point.proto.as_int or point.proto.as_double for point in points]
    assert values == sorted(values)
    assert values[-1] == 30
    markers = [span for span in otlp_receiver.spans() if span.proto.name == "costlens.run"]
    assert len(markers) == 1


def test_without_an_endpoint_nothing_is_sent_and_the_record_is_there(
    otlp_receiver: OtlpReceiver, tmp_path: Path
) -> None:
    """C103 in spirit: with the SDK disabled there is no network; the record is still written."""
    record, _ = _run(
        PLAIN,
        tmp_path,
        OTEL_EXPORTER_OTLP_ENDPOINT=otlp_receiver.endpoint,
        OTEL_SDK_DISABLED="true",
    )
    assert record.progress.iterations == 60
    assert otlp_receiver.requests == []


def test_every_exported_name_is_in_the_catalogue(
    otlp_receiver: OtlpReceiver, tmp_path: Path
) -> None:
    """Nothing is exported that the catalogue, and so the documentation, does not know."""
    _run(PLAIN, tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=otlp_receiver.endpoint)
    assert {point.name for point in otlp_receiver.points()} <= {metric.name for metric in METRICS}


def test_exemplars_of_a_whole_run_lead_to_its_spans(
    otlp_receiver: OtlpReceiver, tmp_path: Path
) -> None:
    """Metrics and traces of one process: an exemplar of a duration names an iteration's span."""
    # On a machine at rest none of sixty iterations is slow: every tenth gets a span.
    _run(
        PLAIN,
        tmp_path,
        OTEL_EXPORTER_OTLP_ENDPOINT=otlp_receiver.endpoint,
        COSTLENS_ITERATION_SPAN_EVERY="10",
    )
    named = {
        (exemplar.trace_id, exemplar.span_id)
        for point in otlp_receiver.points("costlens.iteration.duration")
        for exemplar in point.proto.exemplars
    }
    iterations = {
        (span.proto.trace_id, span.proto.span_id)
        for span in otlp_receiver.spans()
        if span.proto.name == "costlens.iteration"
    }
    assert named
    assert named <= iterations
