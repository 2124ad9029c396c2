"""The scripts in examples/ run as they stand, and leave the run that they promise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from costlens.core.records import Outcome, RankRecord
from tests.fixtures_otlp import OtlpReceiver, otlp_process, otlp_receiver

__all__ = ["otlp_process", "otlp_receiver"]  # fixtures

EXAMPLES = Path(__file__).parents[2] / "examples"


def _run(script: str, folder: Path, **environ: str) -> tuple[RankRecord, str]:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script)],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", **environ},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("costlens-runs/*/record-1-0.json")
    record = RankRecord.model_validate_json(path.read_bytes())
    assert record.attempt.outcome is Outcome.COMPLETED
    assert record.telemetry.faults == {}
    assert sum(record.time_ns.values()) == record.total_ns
    assert "Where the time went" in done.stderr
    return record, done.stdout


def test_every_example_is_tested() -> None:
    """A script added to examples/ needs a test here."""
    tested = {"lightning_callback.py", "otlp_export.py", "plain_loop.py"}
    assert {path.name for path in EXAMPLES.glob("*.py")} == tested


def test_lightning_callback(tmp_path: Path) -> None:
    """One callback gives steps, tokens and the phases of training."""
    record, _ = _run("lightning_callback.py", tmp_path)
    assert record.progress.optimizer_steps == 100
    assert record.progress.slots == 100 * 16 * 32
    assert all(record.time_ns[name] > 0 for name in ("data_wait", "forward", "backward"))


def test_plain_loop(tmp_path: Path) -> None:
    """Five added lines give the same in a plain loop."""
    record, _ = _run("plain_loop.py", tmp_path)
    assert record.progress.iterations == record.progress.optimizer_steps == 100
    assert record.progress.tokens is not None
    assert all(record.time_ns[name] > 0 for name in ("data_wait", "forward", "optimizer"))


@pytest.mark.parametrize("is_exported", [True, False])
def test_otlp_export(tmp_path: Path, otlp_receiver: OtlpReceiver, is_exported: bool) -> None:
    """With an endpoint the run arrives there; without one it is in the run folder all the same."""
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": otlp_receiver.endpoint} if is_exported else {}
    record, stdout = _run("otlp_export.py", tmp_path, **environ)
    assert record.progress.iterations == 60
    assert record.run.id in stdout
    names = {span.proto.name for span in otlp_receiver.spans()}
    assert ("costlens.run" in names) is is_exported
