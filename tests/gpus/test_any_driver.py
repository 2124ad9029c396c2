"""Whatever a driver refuses, and whenever: the probe goes on, and what it says holds together."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from costlens.account.ledger import merge, parse_records
from costlens.cli.demo.fake_gpus.stand_in import StandIn
from costlens.core.device_records import GpuPart
from tests.gpus.conftest import Rig
from tests.gpus.scenarios import make_device, make_node, make_sliced
from tests.unit.account.build import START, make_record

CODES = st.sampled_from([0, 0, 1, 2, 3, 4, 6, 9, 10, 12, 13, 15, 16, 18, 999, 12345])
DEVICE_CALLS = (
    *("GetUtilizationRates", "GetMemoryInfo", "GetPowerUsage", "GetTotalEnergyConsumption"),
    *("GetTemperature", "GetClockInfo", "GetCurrentClocksEventReasons", "GetFieldValues"),
    "GetMaxClockInfo",
    *("GetTotalEccErrors", "GetRemappedRows", "GetPcieReplayCounter", "GetEnforcedPowerLimit"),
    *("GetComputeRunningProcesses_v3", "RegisterEvents", "GetUUID", "GetName", "GetSerial"),
    *("GetPciInfo_v3", "GetMigMode", "GetHandleByIndex_v2", "GetGpuInstanceId"),
    *("GetMigDeviceHandleByIndex", "GetAttributes_v2", "GetMaxMigDeviceCount"),
)
OTHER_CALLS = (
    *("nvmlInitWithFlags", "nvmlDeviceGetCount_v2", "nvmlEventSetCreate", "nvmlEventSetWait_v2"),
    *("nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "nvmlGpmSampleGet", "nvmlShutdown"),
    *("nvmlGpmMetricsGet", "nvmlGpmMigSampleGet", "nvmlSystemGetDriverVersion"),
    "nvmlSystemGetCudaDriverVersion_v2",
)
ALL_CALLS = (*(f"nvmlDevice{name}" for name in DEVICE_CALLS), *OTHER_CALLS)
REFUSALS = st.dictionaries(
    st.sampled_from(ALL_CALLS),
    st.dictionaries(st.integers(0, 40), CODES, min_size=1, max_size=4),
    max_size=8,
)


Refusals = dict[str, dict[int, int]]
"""Result codes of each call, by the second from which they hold."""


def _in_order(refusals: Refusals) -> dict[str, Any]:
    return {name: [[0, 0], *map(list, sorted(c.items()))] for name, c in refusals.items()}


def _check(before: dict[str, GpuPart], now: dict[str, GpuPart]) -> None:
    for uuid, gpu in now.items():
        earlier = before.get(uuid, gpu)
        for name in ("sampled_s", "busy_s", "energy_s", "num_losses", "activity_s"):
            assert getattr(gpu, name) >= getattr(earlier, name)
        assert (gpu.energy_joules or 0) >= (earlier.energy_joules or 0)
        assert all(count >= earlier.errors.get(name, 0) for name, count in gpu.errors.items())
        assert gpu.busy_s <= gpu.utilization_s <= gpu.sampled_s
        if gpu.is_lost:
            assert gpu.power_watts is gpu.utilization is gpu.memory_used_bytes is None


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    everywhere=REFUSALS,
    on_one=REFUSALS,
    lost=st.dictionaries(st.integers(1, 40), st.integers(0, 1), max_size=3),
    is_sliced=st.booleans(),
)
def test_no_driver_gets_the_better_of_the_probe(
    driver: StandIn,
    everywhere: Refusals,
    on_one: Refusals,
    lost: dict[int, int],
    is_sliced: bool,
) -> None:
    """C079, C082: nothing raises, no sum goes back, a lost device shows nothing, records parse."""
    changes = {
        "errors": _in_order(on_one),
        "lost": [[0, 0], *map(list, sorted(lost.items()))],
        "xids": [[7, 31], [9, 79]],
    }
    node = (
        make_sliced(**changes) if is_sliced else make_node(make_device(**changes), make_device(1))
    )
    driver.load({**node, "errors": _in_order(everywhere)})
    driver.set_time(0)
    rig = Rig(driver, device="cuda", num_gpus=1)
    seen: dict[str, GpuPart] = {}
    for time_s in range(0, 44, 2):
        now = {gpu.uuid: gpu for gpu in rig.sample(time_s)}
        _check(seen, now)
        seen.update(now)
    rig.probe.stop()
    record = make_record().model_copy(update={"gpus": rig.gpus, "gpu_driver": rig.driver_part})
    document = json.loads(record.model_dump_json(exclude_none=True))
    parsed, problems = parse_records({"record-1-0.json": document})
    assert problems == []
    assert parsed["record-1-0.json"].gpus == rig.gpus
    assert len(merge([*parsed.values()], now=START + 1).gpu.devices) == len(rig.gpus)
