"""The probe of a rank's GPUs, over the real nvidia-ml-py and the stand-in driver."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from costlens.account.ledger import merge
from costlens.account.price_book import read_bundled
from costlens.account.price_choice import choose_price
from costlens.account.prices import ask_price, resolve_price
from costlens.cli.demo.fake_gpus.model import Board, make_scenario, simulate
from costlens.cli.demo.fake_gpus.stand_in import StandIn
from costlens.config import Config
from costlens.core.device_records import GpuPart
from costlens.core.price_records import EnergyPricePart, PricePart
from costlens.observe.visible_devices import TorchDevice
from tests.gpus.conftest import Rig
from tests.gpus.scenarios import make_device, make_node, make_nodes_gpus, make_sliced
from tests.log_events import capture_events
from tests.unit.account.build import START, make_price, make_record

MakeRig = Callable[..., Rig]


def test_a_device_tells_all_it_has(driver: StandIn, make_rig: MakeRig) -> None:
    """Values in the record's units: ratios, bytes, watts, hertz, and what the driver is."""
    driver.load(make_node())
    rig = make_rig()
    (gpu,) = rig.sample(0, 2, 4)
    assert (gpu.uuid, gpu.serial, gpu.pci_id) == (
        "GPU-00000000-aaaa-bbbb-cccc-000000000000",
        "1654320",
        "00000000:17:00.0",
    )
    assert (gpu.utilization, gpu.memory_utilization) == (0.5, 0.3)
    assert (gpu.memory_used_bytes, gpu.memory_total_bytes) == (20 * 2**30, 80 * 2**30)
    assert (gpu.power_watts, gpu.power_limit_watts) == (100, 700)
    assert (gpu.temperature_celsius, gpu.memory_temperature_celsius) == (60, 70)
    assert (gpu.sm_clock_hertz, gpu.memory_clock_hertz) == (1.98e9, 2.619e9)
    assert gpu.activity == pytest.approx({"sm": 0.4, "tensor": 0.2, "dram": 0.3})
    assert gpu.io_bytes == {
        "pcie_receive": 4_000_000,
        "pcie_transmit": 2_000_000,
        "nvlink_receive": 4000 * 1024,
        "nvlink_transmit": 4000 * 1024,
    }
    assert not any(gpu.errors.values()), "errors from before the attempt are not its own"
    assert gpu.errors.keys() >= {"corrected", "uncorrected", "nvlink_crc", "pcie_replay", "xid"}
    assert not gpu.is_simulated
    part = rig.driver_part
    assert (part.state, part.reason, part.num_samples) == ("ok", None, 3)
    assert (part.driver_version, part.cuda_version) == ("570.86.15", "12.8")


def test_sums_agree_with_the_model(driver: StandIn, make_rig: MakeRig) -> None:
    """Energy and busy time of a training match the integrals of the model that made it up."""
    scenario = make_scenario(2)
    driver.load(scenario)
    gpus = make_rig().sample(*range(0, 119, 2))
    for number, gpu in enumerate(gpus):
        truth = simulate(Board(), number)
        assert gpu.energy_joules == pytest.approx(truth.energy_joules(0, 118), rel=1e-4)
        assert gpu.busy_s == pytest.approx(truth.busy_s(0, 118), rel=0.01)
        assert gpu.activity_busy_s["tensor"] == pytest.approx(0.45 * truth.busy_s(0, 118), rel=0.01)
        assert gpu.sampled_s == gpu.energy_s == 118
        assert gpu.energy_source == "counter"
        assert gpu.is_simulated
        assert gpu.memory_peak_bytes is not None
        assert gpu.memory_peak_bytes > (gpu.memory_used_bytes or 0)


def test_without_a_counter_energy_comes_from_power(driver: StandIn, make_rig: MakeRig) -> None:
    """Boards without an energy counter are measured by their power, and the record says so."""
    scenario = make_scenario(1)
    del scenario["devices"][0]["energy_millijoules"]
    driver.load(scenario)
    (gpu,) = make_rig().sample(*range(0, 119, 2))
    assert gpu.energy_joules == pytest.approx(simulate(Board()).energy_joules(0, 118), rel=0.01)
    assert gpu.energy_source == "power"
    assert gpu.absent["energy_joules"] == "not_supported"


def test_ranks_report_their_own_device(driver: StandIn, make_rig: MakeRig) -> None:
    """C024: four ranks of a node, four GPUs of 100 W, 36 s: the job used 14 400 J for 0.10."""
    driver.load(make_nodes_gpus(4))
    records = []
    for rank in range(4):
        rig = make_rig(rank=rank, local_rank=rank, local_world_size=4, world_size=4)
        gpus = rig.sample(*range(0, 37, 2))
        assert [gpu.uuid[11] for gpu in gpus] == [str(rank)]
        record = make_record(
            rank=rank, world_size=4, time_s={"compute": 36}, price=make_price("2.50", unit="gpu")
        )
        energy = EnergyPricePart(amount_per_kwh="0.30", currency="USD", source="test")
        found = {"gpus": gpus, "gpu_driver": rig.driver_part, "energy_price": energy}
        records.append(record.model_copy(update=found))
    merged = merge(records, now=START + 40)
    assert merged.gpu.energy_joules == pytest.approx(14_400)
    assert merged.gpu.num_devices == 4
    assert merged.cost.total == "0.10"
    assert merged.cost.energy is not None
    assert Decimal(merged.cost.energy.total or 0) == pytest.approx(
        Decimal("0.0012"), rel=Decimal("0.001")
    ), "4 Wh at 0.30 per kWh, beside the total"


def test_slices_cannot_tell_utilization(driver: StandIn, make_rig: MakeRig) -> None:
    """C076: of a MIG slice the utilization is absent, not 0; its memory and activity are there."""
    driver.load(make_sliced())
    (gpu,) = make_rig().sample(0, 2)
    assert gpu.uuid.startswith("MIG-11111110")
    assert gpu.parent_uuid == "GPU-00000000-aaaa-bbbb-cccc-000000000000"
    assert gpu.mig_slices == 3
    assert gpu.utilization is None
    assert gpu.utilization_s == 0
    assert gpu.absent["utilization"] == "not_supported"
    assert (gpu.memory_used_bytes, gpu.memory_total_bytes) == (2**30, 40 * 2**30)
    assert gpu.activity["sm"] == pytest.approx(0.25)
    assert gpu.energy_joules is None, "the board's energy is not the slice's"


def test_a_slice_pays_its_share_and_a_gpu_of_a_price_book_is_found_by_its_name(
    driver: StandIn, make_rig: MakeRig
) -> None:
    """3 of 7 slices of an H100 cost 3/7 of its price, which the driver's name finds in a book."""
    driver.load(make_sliced())
    rig = make_rig(num_gpus=1)
    rig.sample(0)
    rank = rig.state.describe_rank()
    assert Decimal(rank.gpu_share or 0) * 7 == pytest.approx(Decimal(3), abs=Decimal("1e-20"))
    config = Config(price_book="bundled", cloud_provider="lambda")
    listed = choose_price(read_bundled(), ask_price(config, rank, date(2026, 11, 30)))
    price = resolve_price(config, rank, listed=listed)
    assert isinstance(price, PricePart)
    assert (price.amount, price.share, price.entry) == (
        "3.78",
        rank.gpu_share,
        "H100-SXM lambda on_demand",
    )


def test_devices_are_matched_by_uuid(driver: StandIn, make_rig: MakeRig) -> None:
    """C077: of GPUs "2,0" in CUDA's own order, torch says which are which; no other is sampled."""
    driver.load(make_nodes_gpus(4))
    uuids = [make_device(number)["uuid"].removeprefix("GPU-") for number in (2, 0)]
    seen = [TorchDevice(uuid, None) for uuid in uuids]
    rig = make_rig(visible="2,0", order="FASTEST_FIRST", torch_devices=seen)
    assert [gpu.uuid.removeprefix("GPU-") for gpu in rig.sample(0)] == uuids
    assert rig.driver_part.order == "torch"


def test_devices_are_matched_by_pci_id(driver: StandIn, make_rig: MakeRig) -> None:
    """C077: a torch that tells no UUID tells the PCI id."""
    driver.load(make_nodes_gpus(4))
    seen = [TorchDevice(None, make_device(number)["pci_id"]) for number in (2, 0)]
    rig = make_rig(visible="2,0", torch_devices=seen)
    assert [gpu.pci_id for gpu in rig.sample(0)] == [device.pci_id for device in seen]


def test_devices_are_found_again_once_torch_knows_them(driver: StandIn, make_rig: MakeRig) -> None:
    """Before CUDA is initialised the order may be a guess; what torch says then replaces it."""
    slow, fast = make_device(0, name="Tesla T4"), make_device(1)
    driver.load(make_node(slow, fast))
    rig = make_rig(visible="0")
    assert [gpu.uuid for gpu in rig.sample(0)] == [slow["uuid"]]
    assert rig.driver_part.order == "assumed"
    rig.torch_devices = [TorchDevice(fast["uuid"].removeprefix("GPU-"), None)]
    assert [gpu.uuid for gpu in rig.sample(2)] == [fast["uuid"]]
    assert rig.driver_part.order == "torch"


def test_the_ranks_own_numbers_decide(driver: StandIn, make_rig: MakeRig) -> None:
    """A rank that says which of torch's devices it drives has these, whatever its local rank."""
    driver.load(make_nodes_gpus(4))
    rig = make_rig(local_world_size=2)
    assert [gpu.uuid[11] for gpu in rig.sample(0)] == ["0"]
    rig.state.gpu_ordinals = (3, 1)
    assert [gpu.uuid[11] for gpu in rig.sample(2)] == ["3", "1"]


def test_unknown_devices_are_named_and_left_out(driver: StandIn, make_rig: MakeRig) -> None:
    """C083: of GPUs 0 and 9 on a node of two, 0 is used, and 9 is named once."""
    driver.load(make_nodes_gpus(2))
    with capture_events() as events:
        rig = make_rig(visible="0,9")
        gpus = rig.sample(0, 2, 4)
    assert [gpu.uuid[11] for gpu in gpus] == ["0"]
    assert [event["event"] for event in events] == ["costlens.gpu.selection"]
    assert "'9'" in events[0]["message"]
    assert rig.driver_part.problems == [events[0]["message"].partition(";")[0]]


def test_a_fork_opens_the_driver_again(driver: StandIn, make_rig: MakeRig) -> None:
    """C078: parent, forked child, and the parent again all get their samples."""
    driver.load(make_node())
    rig = make_rig()
    assert rig.sample(0)[0].power_watts == 100
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = b"failed"
        try:
            rig.driver.set_time(2)
            before = rig.driver.num_calls("nvmlInitWithFlags")
            (gpu,) = rig.sample(2)
            if gpu.power_watts == 100 and rig.driver.num_calls("nvmlInitWithFlags") == before + 1:
                status = b"sampled"
        finally:
            os.write(writing, status)
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as pipe:
        assert pipe.read() == b"sampled"
    before = rig.driver.num_calls("nvmlInitWithFlags")
    (gpu,) = rig.sample(2)
    assert gpu.power_watts == 100
    assert gpu.energy_joules == pytest.approx(200)
    assert rig.driver.num_calls("nvmlInitWithFlags") == before, "the parent's opening still holds"


def test_a_fork_while_the_library_is_asked_leaves_no_lock(
    driver: StandIn, make_rig: MakeRig
) -> None:
    """C078: nvidia-ml-py holds a lock at the fork; the child has one of its own, and samples."""
    import pynvml

    driver.load(make_node())
    rig = make_rig()
    rig.sample(0)
    with pynvml.libLoadLock:
        child = os.fork()
        if child == 0:
            signal.alarm(10)
            try:
                (gpu,) = rig.sample(2)
                os._exit(0 if gpu.power_watts == 100 else 1)
            finally:
                os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_processes_of_another_namespace_are_not_ours(driver: StandIn, make_rig: MakeRig) -> None:
    """C081: a foreign process list gives no memory of ours; the device's own figure stays."""
    others = [[4242, 2**30], [os.getpid(), 2**31]]
    driver.load(make_node(make_device(processes=others)))
    (gpu,) = make_rig(has_own_pids=False).sample(0)
    assert gpu.own_memory_bytes is None
    assert gpu.absent["own_memory_bytes"] == "foreign_process_ids"
    assert gpu.memory_used_bytes == 20 * 2**30
    assert gpu.is_shared is True
    (gpu,) = make_rig(has_own_pids=True).sample(0)
    assert gpu.own_memory_bytes == 2**31
    driver.load(make_node(make_device(processes=others[:1])))
    (gpu,) = make_rig(has_own_pids=True).sample(0)
    assert (gpu.own_memory_bytes, gpu.is_shared) == (None, True)
    assert gpu.absent["own_memory_bytes"] == "not_listed"


FIELDS_OF = {
    "nvmlDeviceGetUtilizationRates": {"utilization", "memory_utilization"},
    "nvmlDeviceGetMemoryInfo": {"memory_used_bytes", "memory_total_bytes", "memory_peak_bytes"},
    "nvmlDeviceGetPowerUsage": {"power_watts"},
    "nvmlDeviceGetEnforcedPowerLimit": {"power_limit_watts"},
    "nvmlDeviceGetTotalEnergyConsumption": set(),  # power stands in
    "nvmlDeviceGetTemperature": {"temperature_celsius"},
    "nvmlDeviceGetClockInfo": {"sm_clock_hertz", "memory_clock_hertz", "throttle_loss_s"},
    "nvmlDeviceGetMaxClockInfo": {"sm_clock_max_hertz", "throttle_loss_s"},
    "nvmlDeviceGetCurrentClocksEventReasons": {"throttle_s", "throttle_loss_s"},
    "nvmlDeviceGetFieldValues": {"memory_temperature_celsius", "io_bytes"},
    "nvmlDeviceGetTotalEccErrors": set(),
    "nvmlDeviceGetRemappedRows": {"is_remap_pending"},
    "nvmlDeviceGetPcieReplayCounter": set(),
    "nvmlDeviceGetComputeRunningProcesses_v3": {"is_shared"},
    "nvmlGpmQueryDeviceSupport": {"activity", "activity_busy_s"},
    "nvmlGpmSampleGet": {"activity", "activity_busy_s"},
    "nvmlGpmMetricsGet": {"activity", "activity_busy_s"},
    "nvmlEventSetCreate": set(),
    "nvmlDeviceRegisterEvents": set(),
    "nvmlDeviceGetName": {"name"},
    "nvmlDeviceGetSerial": {"serial"},
    "nvmlDeviceGetPciInfo_v3": {"pci_id"},
    "nvmlDeviceGetMigMode": set(),
}
ERRORS_OF = {
    "nvmlDeviceGetTotalEccErrors": {"corrected", "uncorrected"},
    "nvmlDeviceGetRemappedRows": {
        *("row_remap_corrected", "row_remap_uncorrected", "row_remap_failure"),
    },
    "nvmlDeviceGetPcieReplayCounter": {"pcie_replay"},
    "nvmlDeviceGetFieldValues": {"nvlink_crc"},
    "nvmlEventSetCreate": {"xid"},
    "nvmlDeviceRegisterEvents": {"xid"},
}


def _known(gpu: GpuPart) -> set[str]:
    told = gpu.model_dump(exclude_none=True)
    return {name for name, value in told.items() if value != {}}


@pytest.mark.parametrize("code", [3, 999], ids=["not_supported", "unknown_error"])
@pytest.mark.parametrize("function", FIELDS_OF)
def test_one_refused_call_costs_one_field(
    driver: StandIn, make_rig: MakeRig, function: str, code: int
) -> None:
    """C082: every call may fail alone; what it tells is absent with a reason, all else is there."""
    driver.load(make_node())
    (whole,) = make_rig().sample(0, 2)
    driver.load(make_node(make_device(errors={function: code}), errors={"nvmlEventSetCreate": 0}))
    if function in {"nvmlEventSetCreate", "nvmlGpmMetricsGet"}:
        driver.load(make_node(errors={function: code}))
    (gpu,) = make_rig().sample(0, 2)
    assert _known(whole) - _known(gpu) == FIELDS_OF[function]
    assert whole.errors.keys() - gpu.errors.keys() == ERRORS_OF.get(function, set())
    word = {3: "not_supported", 999: "unknown_error"}[code]
    missing = FIELDS_OF[function] - {"name", "serial", "pci_id", "memory_peak_bytes"}
    reasons = {gpu.absent.get(name.replace("activity_busy_s", "activity")) for name in missing}
    assert reasons <= {word, None}
    if missing - {"io_bytes"}:
        assert word in reasons


def test_memory_of_unified_boards_is_absent(driver: StandIn, make_rig: MakeRig) -> None:
    """C082: a board without memory of its own reports 0 in total: absent, and no share of it."""
    driver.load(make_node(make_device(memory_total_bytes=0, memory_used_bytes=0)))
    (gpu,) = make_rig().sample(0)
    assert gpu.memory_total_bytes is None
    assert gpu.absent["memory_total_bytes"] == "not_supported"


def test_unsupported_fields_are_asked_for_once(driver: StandIn, make_rig: MakeRig) -> None:
    """A call that is not supported is not made again every 2 s; one that just failed is."""
    errors = {"nvmlDeviceGetPowerUsage": 3, "nvmlDeviceGetTemperature": 999}
    driver.load(make_node(make_device(errors=errors)))
    make_rig().sample(0, 2, 4, 6)
    assert driver.num_calls("nvmlDeviceGetPowerUsage") == 1
    assert driver.num_calls("nvmlDeviceGetTemperature") == 4


def test_a_lost_gpu_shows_nothing_old(driver: StandIn, make_rig: MakeRig) -> None:
    """While a GPU is lost nothing of it is told; its return is noticed, and each is logged once."""
    lost = make_device(1, lost=[[0, 0], [5, 1], [15, 0]])
    driver.load(make_node(make_device(0), lost))
    with capture_events() as events:
        rig = make_rig()
        before = rig.sample(0, 2, 4)[1]
        during = rig.sample(6, 8, 10, 12)
        after = rig.sample(14, 16, 18, 20, 22)[1]
    assert [event["event"] for event in events] == ["costlens.gpu.lost", "costlens.gpu.recovered"]
    assert {event["uuid"] for event in events} == {lost["uuid"]}
    assert during[0].power_watts == 100, "the other one goes on"
    gone = during[1]
    assert (gone.is_lost, gone.num_losses) == (True, 1)
    assert gone.power_watts is gone.utilization is gone.memory_used_bytes is None
    assert (gone.energy_joules, gone.sampled_s) == (before.energy_joules, before.sampled_s)
    assert (after.is_lost, after.num_losses, after.power_watts) == (False, 1, 100)
    assert after.sampled_s == before.sampled_s + 2
    assert after.energy_joules == pytest.approx(400 + 200)


def test_counters_that_begin_anew_do_not_go_back(driver: StandIn, make_rig: MakeRig) -> None:
    """A counter that a reset took to 0 adds what it counted since, and energy comes from power."""
    device = make_device(
        ecc_corrected=[[0, 30], [4.9, 30], [5, 0], [7, 4]],
        energy_millijoules=[[0, 5e6], [4.9, 5.49e6], [5, 0], [3605, 3.6e8]],
        pcie_receive_bytes=[[0, 100], [4.9, 4900], [5, 0], [105, 1e5]],
    )
    driver.load(make_node(device))
    (gpu,) = make_rig().sample(0, 2, 4, 6, 8, 10, 12)
    assert gpu.errors["corrected"] == 4
    assert gpu.energy_joules == pytest.approx(1200, rel=0.01)
    assert gpu.energy_source == "both"
    assert gpu.io_bytes["pcie_receive"] >= 7000


def test_throttling_is_timed_by_reason(driver: StandIn, make_rig: MakeRig) -> None:
    """Seconds by reason; reasons overlap, and idle clocks hold nothing down."""
    power_cap, thermal, idle, slowdown = 0x4, 0x20, 0x1, 0x8
    steps = [[0, idle], [9, power_cap], [19, power_cap | thermal], [29, slowdown], [39, 0]]
    driver.load(make_node(make_device(clock_reasons=steps)))
    (gpu,) = make_rig().sample(*range(0, 51, 2))
    assert gpu.throttle_s is not None
    assert gpu.throttle_s["power_cap"] == pytest.approx(20, abs=1)
    assert gpu.throttle_s["thermal_sw"] == pytest.approx(10, abs=1)
    assert gpu.throttle_s["other"] == pytest.approx(10, abs=1)
    assert gpu.throttle_s["hw_brake"] == 0


def test_error_codes_are_told_once(driver: StandIn, make_rig: MakeRig) -> None:
    """An XID is counted, logged, and known to the last words of the run."""
    driver.load(make_node(make_device(xids=[[3, 31], [5, 79]])))
    with capture_events() as events:
        rig = make_rig()
        assert rig.sample(0, 2)[0].errors["xid"] == 0
        (gpu,) = rig.sample(4, 6, 8)
    assert (gpu.errors["xid"], gpu.last_xid) == (2, 79)
    assert rig.state.last_xid == 79
    assert [(event["event"], event["xid"]) for event in events] == [
        ("costlens.gpu.xid", 31),
        ("costlens.gpu.xid", 79),
    ]


INIT_ERRORS = {9: "no_driver", 4: "no_permission", 18: "version_mismatch", 999: "unknown_error"}


@pytest.mark.parametrize("code", INIT_ERRORS)
def test_a_driver_that_refuses_is_told_once(driver: StandIn, make_rig: MakeRig, code: int) -> None:
    """C079: one notice where the rank drives a GPU; the record says unavailable and why."""
    driver.load(make_node(errors={"nvmlInitWithFlags": code}))
    with capture_events() as events:
        rig = make_rig(device="cuda", num_gpus=1)
        assert rig.sample(*range(0, 200, 2)) == []
    assert (rig.driver_part.state, rig.driver_part.reason) == ("unavailable", INIT_ERRORS[code])
    assert [(event["event"], event["reason"]) for event in events] == [
        ("costlens.gpu.unavailable", INIT_ERRORS[code])
    ]


def test_a_machine_without_gpus_is_silent(driver: StandIn, make_rig: MakeRig) -> None:
    """No driver, and a rank that drives no GPU: nothing is said, the record knows why."""
    with capture_events() as events:
        rig = make_rig()
        assert rig.sample(0, 2) == []
    assert rig.driver_part.reason == "no_library"
    assert events == []


def test_a_driver_that_comes_later_is_found(driver: StandIn, make_rig: MakeRig) -> None:
    """Opening is tried again once a minute."""
    rig = make_rig()
    assert rig.sample(0) == []
    driver.load(make_node())
    assert len(rig.sample(*range(2, 64, 2))) == 1


def test_a_closed_library_is_opened_again(driver: StandIn, make_rig: MakeRig) -> None:
    """Somebody else in the process may shut the library down: the sample after opens it."""
    import pynvml

    driver.load(make_node())
    rig = make_rig()
    rig.sample(0)
    with contextlib.suppress(pynvml.NVMLError_Uninitialized):
        while True:  # as often as it was opened, whoever did that
            pynvml.nvmlShutdown()
    rig.sample(2)
    (gpu,) = rig.sample(4, 6)
    assert gpu.power_watts == 100
    assert gpu.sampled_s == 2


def test_a_second_fit_goes_on(driver: StandIn, make_rig: MakeRig) -> None:
    """What was measured stays over the close of a probe; the time in between is nobody's."""
    driver.load(make_node())
    rig = make_rig()
    rig.sample(0, 2)
    rig.probe.stop()
    rig.probe.start()
    (gpu,) = rig.sample(100, 102)
    assert gpu.energy_joules == pytest.approx(400)
    assert gpu.sampled_s == 4


def test_slices_by_name_and_legacy_name(driver: StandIn, make_rig: MakeRig) -> None:
    """Both spellings of a MIG device select it."""
    scenario: dict[str, Any] = make_sliced()
    driver.load(scenario)
    for visible in ("MIG-11111111", "MIG-GPU-00000000-aaaa-bbbb-cccc-000000000000/2/0"):
        (gpu,) = make_rig(visible=visible).sample(0)
        assert gpu.uuid.startswith("MIG-11111111")


def test_what_is_opened_is_closed(driver: StandIn, make_rig: MakeRig) -> None:
    """Buffers, event sets and the library itself are given back, over refits and recoveries."""
    lost = make_device(1, lost=[[0, 0], [5, 1], [15, 0]])
    driver.load(make_node(make_device(0), lost))
    rig = make_rig()
    rig.sample(*range(0, 30, 2))
    rig.probe.stop()
    rig.probe.start()
    rig.sample(*range(30, 40, 2))
    rig.probe.stop()
    for opens, closes in (
        ("nvmlInitWithFlags", "nvmlShutdown"),
        ("nvmlEventSetCreate", "nvmlEventSetFree"),
        ("nvmlGpmSampleAlloc", "nvmlGpmSampleFree"),
    ):
        assert driver.num_calls(opens) == driver.num_calls(closes) > 0, opens


def test_a_board_too_many_is_left_out(driver: StandIn, make_rig: MakeRig) -> None:
    """The record describes sixteen devices at most, whatever the node has."""
    driver.load(make_nodes_gpus(9))
    rig = make_rig()
    rig.state.gpu_ordinals = (8, 8, 0)
    assert len(rig.sample(0)) == 2, "a device that is named twice is one"


def test_a_driver_that_breaks_on_the_way_is_told(driver: StandIn, make_rig: MakeRig) -> None:
    """An update of the driver under a running job: nothing old is shown, and the reason is."""
    driver.load(make_node(make_device(), errors={"nvmlDeviceGetCount_v2": [[0, 0], [5, 18]]}))
    rig = make_rig(device="cuda", num_gpus=1)
    assert rig.sample(0, 2)[0].power_watts == 100
    rig.state.gpu_ordinals = (0,)  # the devices are listed again
    with capture_events() as events:
        (gpu,) = rig.sample(6, 8)
    assert (gpu.power_watts, gpu.energy_joules) == (None, pytest.approx(200))
    assert (rig.driver_part.state, rig.driver_part.reason) == ("unavailable", "version_mismatch")
    assert [event["event"] for event in events] == ["costlens.gpu.unavailable"]


def test_a_loss_never_makes_another_gpu_ours(driver: StandIn, make_rig: MakeRig) -> None:
    """Of GPU "0" that is lost, and a library that is opened anew: GPU 1 is not taken for it."""
    lost = make_device(0, lost=[[0, 0], [3, 1], [31, 0]])
    driver.load(
        make_node(lost, make_device(1), errors={"nvmlDeviceGetCount_v2": [[0, 0], [9, 1], [11, 0]]})
    )
    rig = make_rig(visible="0")
    (before,) = rig.sample(0, 2)
    (during,) = rig.sample(*range(4, 30, 2))
    assert (during.uuid, during.is_lost) == (before.uuid, True)
    (after,) = rig.sample(*range(30, 52, 2))
    assert (after.uuid, after.is_lost, after.num_losses) == (before.uuid, False, 1)
    assert after.sampled_s >= before.sampled_s + 2


def test_sums_outlive_another_choice(driver: StandIn, make_rig: MakeRig) -> None:
    """A device that is ours, is not, and is again goes on where it was."""
    driver.load(make_nodes_gpus(2))
    rig = make_rig()
    for ordinals in ((0,), (1,), (0,)):
        rig.state.gpu_ordinals = ordinals
        start_s = 10 * rig.driver_part.num_samples
        (gpu,) = rig.sample(start_s, start_s + 2)
    assert gpu.uuid == make_device(0)["uuid"]
    assert gpu.sampled_s >= 4


def test_functions_that_an_older_driver_lacks(driver: StandIn, make_rig: MakeRig) -> None:
    """C079: nvidia-ml-py has a way of its own to say so; it costs that field and nothing else."""
    missing = {"nvmlDeviceGetComputeRunningProcesses_v3": 13, "nvmlDeviceGetMemoryInfo": 13}
    driver.load(make_node(make_device(errors=missing)))
    (gpu,) = make_rig().sample(0, 2)
    assert gpu.absent["own_memory_bytes"] == "not_in_library"
    assert gpu.absent["memory_used_bytes"] == "not_in_library"
    assert gpu.power_watts == 100
