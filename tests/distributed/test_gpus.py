"""Two ranks of torchrun on a node with two GPUs: each has its own, the job has both, once."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from costlens.account.ledger import merge
from costlens.cli.demo.fake_gpus.stand_in import compile_driver, write_scenario
from tests.distributed.launching import TORCHRUN, Launcher
from tests.fixtures_otlp import OtlpReceiver
from tests.gpus.scenarios import make_device, make_nodes_gpus

pytestmark = pytest.mark.slow


def test_each_rank_has_its_own_gpu(
    launch: Launcher,
    otlp_receiver: OtlpReceiver,
    port: str,
    tmp_path: Path,
    require: Callable[[str, bool, str], None],
) -> None:
    """C024: no rank's record or series has another rank's GPU; energy and money count each once."""
    require("nvml", shutil.which("gcc") is not None, "no gcc to compile the stand-in driver with")
    compile_driver(tmp_path)
    write_scenario(make_nodes_gpus(2), tmp_path / "scenario")
    launch(
        "job_plain.py",
        "torchrun",
        prefix=(*TORCHRUN, port),
        LD_LIBRARY_PATH=str(tmp_path),
        FAKE_NVML_SCENARIO=str(tmp_path / "scenario"),
    )
    (run,) = launch.runs
    records = [*launch.records(run).values()]
    uuids = [make_device(number)["uuid"] for number in (0, 1)]
    assert [[gpu.uuid for gpu in record.gpus] for record in records] == [[uuid] for uuid in uuids]
    for record in records:
        assert record.telemetry.faults == {}
        (gpu,) = record.gpus
        assert gpu.energy_joules == pytest.approx(100 * gpu.energy_s, rel=0.05)
    merged = merge(records, now=time.time()).gpu
    assert (merged.num_devices, merged.power_watts) == (2, 200)
    assert merged.energy_joules == pytest.approx(sum(r.gpus[0].energy_joules or 0 for r in records))
    seen = {
        (point.resource["costlens.rank"], point.attributes["hw.id"])
        for point in otlp_receiver.points()
        if point.name.startswith(("hw.", "costlens.gpu."))
    }
    assert seen == {(0, uuids[0]), (1, uuids[1])}
