"""Whole runs beside a driver: training is the same with one, without one, and with a broken one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from costlens.cli.demo import plain_job
from costlens.cli.demo.fake_gpus.stand_in import StandIn, compile_driver, write_scenario
from costlens.config import resolve_config
from costlens.core.records import RankRecord
from costlens.run import Run
from costlens.testing import MemoryExporter
from tests.gpus.scenarios import make_device, make_node
from tests.log_events import capture_events

STEPS = 2


@contextmanager
def _opened(**drives: object) -> Iterator[tuple[Run, MemoryExporter]]:
    exporter = MemoryExporter()
    config = resolve_config(summary=False, node_hour_price="36", gpu_hour_price="36")
    run = Run(config, exporters=[exporter]).open(**drives)  # type: ignore[arg-type]
    try:
        yield run, exporter
    finally:
        run.finish()


def _train(**drives: object) -> tuple[float, RankRecord]:
    with _opened(**drives) as (run, exporter):
        loss = plain_job.train(run, 3, max_steps=STEPS).final
    return loss, exporter.snapshots[-1].record


@pytest.fixture(scope="module")
def undisturbed() -> float:
    """Return the loss of the training without any driver."""
    return _train()[0]


@pytest.mark.parametrize(
    ("code", "reason"),
    [(12, "no_library"), (9, "no_driver"), (18, "version_mismatch"), (4, "no_permission")],
)
def test_a_driver_that_cannot_be_used_changes_nothing(
    driver: StandIn, undisturbed: float, code: int, reason: str
) -> None:
    """C079: the losses are bit for bit the same, one warning, the reason, and cost by time."""
    driver.load(make_node(errors={"nvmlInitWithFlags": code}))
    with capture_events() as events:
        loss, record = _train(num_gpus=1, device="cuda")
    assert loss == undisturbed
    assert record.gpu_driver is not None
    assert (record.gpu_driver.state, record.gpu_driver.reason) == ("unavailable", reason)
    assert record.gpus == []
    warnings = [event for event in events if event["log_level"] == "warning"]
    assert [event["event"] for event in warnings] == ["costlens.gpu.unavailable"]
    assert record.price is not None
    assert sum(record.time_ns.values()) == record.total_ns


def test_a_missing_package_changes_nothing(
    driver: StandIn, undisturbed: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C079: the same where nvidia-ml-py is not installed."""
    driver.load(make_node())
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with capture_events() as events:
        loss, record = _train(num_gpus=1, device="cuda")
    assert loss == undisturbed
    assert record.gpu_driver is not None
    assert record.gpu_driver.reason == "no_package"
    assert [event["event"] for event in events if event["log_level"] == "warning"] == [
        "costlens.gpu.unavailable"
    ]


def test_a_machine_without_a_driver_is_silent() -> None:
    """No library, no GPU: a process that never had a driver says nothing and pays no import."""
    program = (
        "import sys, costlens\n"
        "run = costlens.start('quiet', summary=False)\n"
        "with run.iteration(): pass\n"
        "record = run.finish()\n"
        "print(record.gpu_driver.reason, len(record.gpus), 'pynvml' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=os.environ,
    )
    if "no_library" not in done.stdout:
        pytest.skip("this machine has a driver of its own")
    assert done.stdout.split() == ["no_library", "0", "False"]
    assert "gpu" not in done.stderr.lower()


def test_the_library_path_is_enough(driver: StandIn, tmp_path: Path) -> None:
    """A driver that the system finds by its name is sampled, as on any machine with one."""
    compile_driver(tmp_path)
    write_scenario(make_node(make_device(), make_device(1)), tmp_path / "scenario")
    program = (
        "import costlens\n"
        "run = costlens.start('found', summary=False)\n"
        "with run.iteration(): pass\n"
        "print(*(gpu.power_watts for gpu in run.finish().gpus))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={
            **os.environ,
            "LD_LIBRARY_PATH": str(tmp_path),
            "FAKE_NVML_SCENARIO": str(tmp_path / "scenario"),
            "CUDA_VISIBLE_DEVICES": "1",
        },
    )
    assert done.stdout.split() == ["100.0"]


def test_cuda_is_never_initialised(
    driver: StandIn, undisturbed: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C080: with GPUs in sight and a CUDA that must not be touched, watching trains on the CPU."""

    def refuse(*_: object) -> None:
        raise AssertionError("somebody initialised CUDA")

    for name in ("init", "_lazy_init", "current_device", "get_device_properties"):
        monkeypatch.setattr(torch.cuda, name, refuse)
    driver.load(make_node())
    loss, record = _train()
    assert loss == undisturbed
    assert [gpu.power_watts for gpu in record.gpus] == [100]
    assert record.telemetry.faults == {}


def test_a_lost_gpu_harms_no_training(driver: StandIn, undisturbed: float) -> None:
    """A device that is gone from the start or dies on the way is not the training's business."""
    driver.load(make_node(make_device(lost=1)))
    assert _train()[0] == undisturbed


def test_simulated_gpus_are_paid_for(driver: StandIn) -> None:
    """A simulated driver's devices count as driven, so that a demonstration has a price."""
    driver.load(make_node(make_device(), make_device(1), driver_version="simulated 1.0"))
    _, record = _train()
    assert record.rank.num_gpus == 2
    assert record.price is not None
    assert (record.price.unit, record.price.share) == ("gpu", "2")


def test_real_gpus_that_a_cpu_training_sees_are_not_paid_for(driver: StandIn) -> None:
    """A training on the CPU of a machine with GPUs pays for its node."""
    driver.load(make_node())
    _, record = _train()
    assert record.rank.num_gpus == 0
    assert record.price is not None
    assert record.price.unit == "node"


def test_the_trace_tells_the_devices_of_its_period(driver: StandIn, tmp_path: Path) -> None:
    """A run's own rank span carries utilization, power and energy of its GPUs beside its time."""
    driver.load(make_node(make_device(), make_device(1), driver_version="simulated 1.0"))
    driver.set_time(-1)
    config = resolve_config(
        summary=False, gpu_hour_price="36", otlp_file=True, dir=str(tmp_path), window_s=0.2
    )
    run = Run(config).open()
    for _ in range(4):
        with run.iteration():
            time.sleep(0.15)
    record = run.finish()
    written = "".join(path.read_text() for path in tmp_path.rglob("*traces*"))
    spans = [
        span
        for line in written.splitlines()
        for of_resource in json.loads(line)["resourceSpans"]
        for of_scope in of_resource["scopeSpans"]
        for span in of_scope["spans"]
        if span["name"] == "costlens.rank.period"
    ]
    told = [
        {a["key"]: next(iter(a["value"].values())) for a in span["attributes"]} for span in spans
    ]
    assert told
    for attributes in told:
        assert int(attributes["costlens.gpu.count"]) == 2
        assert attributes["costlens.simulated"] == "true"
    energy_j = sum(float(attributes.get("costlens.gpu.energy", 0)) for attributes in told)
    assert record is not None
    assert energy_j == pytest.approx(sum(gpu.energy_joules or 0 for gpu in record.gpus))
    assert energy_j > 0
