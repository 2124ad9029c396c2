"""The GPU page of the catalogue: by device where that fits, together where it does not."""

from __future__ import annotations

import pytest

from costlens.account.gpus import combine_gpus
from costlens.core.device_records import MAX_GPUS
from costlens.core.guard import faults
from costlens.export.catalog import MAX_SERIES, METRICS, read_points
from costlens.export.catalog_gpu import GPU_METRICS
from costlens.export.gpu_readings import gpu_attributes
from costlens.export.otel_metrics import MetricsExporter
from tests.log_events import capture_events
from tests.unit.export.rehearsal import Outbox, Rehearsal, complete, make_gpu
from tests.unit.export.test_catalog import series, values


def _with(num_gpus: int) -> Rehearsal:
    run = complete()
    run.gpus = [make_gpu(f"GPU-{number}") for number in range(num_gpus)]
    return run


def test_forty_percent_is_exported_as_a_ratio() -> None:
    """C148: a GPU that is busy for 40 % of the time has 0.4, not 40."""
    snapshot = complete().look()
    assert values(snapshot, "hw.gpu.utilization") == {"GPU-a": 0.4}
    assert values(snapshot, "hw.power") == {"GPU-a gpu": 300}
    assert values(snapshot, "hw.energy") == {"GPU-a gpu": 6000}
    assert values(snapshot, "costlens.gpu.activity.ratio")["GPU-a tensor"] == 0.2
    assert values(snapshot, "hw.errors")["GPU-a gpu xid"] == 1
    assert values(snapshot, "costlens.gpu.throttle.time")["GPU-a power_cap"] == 2


@pytest.mark.parametrize("num_gpus", [1, 2, 4, 8, MAX_GPUS])
def test_a_rank_with_many_gpus_stays_within_the_limit(num_gpus: int) -> None:
    """C095: four devices tell what is theirs, and their details together; 300 series hold it."""
    snapshot = _with(num_gpus).look()
    assert len(series(snapshot)) <= sum(metric.max_series for metric in METRICS) <= MAX_SERIES
    for metric in GPU_METRICS:
        assert len(list(read_points(metric, snapshot))) <= metric.max_series
    assert len(values(snapshot, "hw.power")) == (num_gpus if num_gpus <= 4 else 1)
    assert sum(values(snapshot, "hw.power").values()) == 300 * num_gpus
    assert sum(values(snapshot, "hw.energy").values()) == 6000 * num_gpus
    assert sum(values(snapshot, "hw.gpu.io").values()) == 2000 * num_gpus
    assert values(snapshot, "costlens.gpu.state").popitem()[1] in {0, num_gpus}


def test_a_rank_without_gpus_has_no_point() -> None:
    """Law 3: no GPU is not a GPU at 0 %."""
    snapshot = _with(0).look()
    assert not [m.name for m in GPU_METRICS if list(read_points(m, snapshot))]


def test_what_a_device_does_not_tell_has_no_point() -> None:
    """C076: an unsupported utilization is no series; memory is there, and no error count at 0."""
    run = complete()
    run.gpus = [
        make_gpu(utilization=None, activity={}, errors={}, throttle_s=None, energy_joules=None)
    ]
    snapshot = run.look()
    gone = ("hw.gpu.utilization", "costlens.gpu.activity.ratio", "hw.errors", "hw.energy")
    assert [values(snapshot, name) for name in gone] == [{}] * 4
    assert values(snapshot, "costlens.gpu.throttle.time") == {}
    assert values(snapshot, "hw.gpu.memory.usage") == {"GPU-a": 20}


def test_simulated_devices_say_so_on_every_point() -> None:
    """Nobody must take a demonstration's numbers for a machine's."""
    run = complete()
    run.gpus = [make_gpu(is_simulated=True)]
    snapshot = run.look()
    for metric in GPU_METRICS:
        points = list(read_points(metric, snapshot))
        assert points
        assert {attributes["costlens.simulated"] for attributes, _ in points} == {"true"}
    assert gpu_attributes([], run.gpus)["costlens.simulated"] == "true"
    real = [a for m in GPU_METRICS for a, _ in read_points(m, complete().look())]
    assert not [attributes for attributes in real if "costlens.simulated" in attributes]


def test_run_info_leads_from_rank_to_devices() -> None:
    """Rank to UUID, serial and PCI id of each of its devices, in one order."""
    run = _with(2)
    (point,) = read_points(next(m for m in METRICS if m.name == "costlens.run.info"), run.look())
    assert point[0]["hw.id"] == "GPU-0,GPU-1"
    assert point[0]["hw.serial_number"] == "16,16"
    assert point[0]["costlens.gpu.pci_id"] == "17:00.0,17:00.0"
    assert point[0]["costlens.gpu.driver"] == "57.8"


def test_a_failing_gpu_entry_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """C101: the GPU entries raise at each read; steps, tokens and cost flow, one warning."""

    def fail(*_: object) -> None:
        raise OSError("the card is on fire")

    monkeypatch.setattr(faults, "strict", False)
    monkeypatch.setattr(faults, "_logged", set())
    monkeypatch.setattr(faults, "counts", {})
    monkeypatch.setattr("costlens.export.gpu_readings._identify", fail)
    outbox, run = Outbox(), complete()
    exporter = MetricsExporter(outbox)  # type: ignore[arg-type]
    with capture_events() as events:
        for _ in range(3):
            run.steps(10)
            exporter.export(run.look())
    assert [event["event"] for event in events] == ["costlens.fault"]
    last = outbox.batches[-1][1].resource_metrics[0].scope_metrics[0].metrics  # type: ignore[attr-defined]
    names = {metric.name for metric in last}
    assert {"costlens.steps", "costlens.tokens", "costlens.cost"} <= names
    assert not names & {metric.name for metric in GPU_METRICS}
    steps = next(metric for metric in last if metric.name == "costlens.steps")
    assert max(point.value for point in steps.data.data_points) == 50
    assert faults.counts["export.catalog"] == 3 * len(GPU_METRICS)


def test_a_span_tells_what_happened_in_its_time() -> None:
    """Means, energy and throttling between two records; memory and temperature as they stand."""
    before = [make_gpu()]
    now = [
        make_gpu(
            utilization_s=30,
            busy_s=17,
            energy_joules=9000,
            energy_s=30,
            activity_s=30,
            activity_busy_s={"sm": 10, "tensor": 9, "dram": 6},
            throttle_s={"power_cap": 5, "thermal_hw": 0},
            errors={"xid": 3, "corrected": 0},
        )
    ]
    told = gpu_attributes(before, now)
    assert told["costlens.gpu.utilization"] == pytest.approx(0.9)
    assert told["costlens.gpu.energy"] == 3000
    assert told["costlens.gpu.power.mean"] == 300
    assert told["costlens.gpu.activity.tensor"] == pytest.approx(0.5)
    assert told["costlens.gpu.throttle.time.power_cap"] == 3
    assert told["costlens.gpu.errors.xid"] == 2
    assert told["costlens.gpu.memory.usage"] == 20
    assert "costlens.gpu.throttle.time.thermal_hw" not in told
    assert gpu_attributes([], []) == {}


def test_devices_that_are_told_together() -> None:
    """Sums of what adds up, the mean of shares, the hottest of temperatures."""
    both = combine_gpus([make_gpu(), make_gpu(utilization=0.8, temperature_celsius=75)])
    assert (both.uuid, both.utilization, both.temperature_celsius) == (
        "all",
        0.6000000000000001,
        75,
    )
    assert (both.power_watts, both.memory_used_bytes, both.energy_joules) == (600, 40, 12_000)
    assert both.activity == pytest.approx({"sm": 0.4, "tensor": 0.2, "dram": 0.3})
