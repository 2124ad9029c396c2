"""The use of GPUs and hosts in one window."""

from __future__ import annotations

import pytest

from costlens.account.use import measure_use
from costlens.core.device_records import GpuPart
from costlens.core.host_records import ContainerPart, HostPart, LoaderPart, NodePart
from costlens.core.records import RankRecord
from tests.unit.account.build import make_record


def _gpu(uuid: str = "a", **parts: object) -> GpuPart:
    return GpuPart.model_validate({"uuid": uuid, **parts})


def _with(*gpus: GpuPart, host: HostPart | None = None) -> RankRecord:
    return make_record(time_s={"compute": 10.0}, gpus=list(gpus), host=host)


def test_the_load_is_that_of_the_window_and_not_of_the_attempt() -> None:
    """Sums since the start of the attempt are subtracted: a late stall is no longer diluted."""
    before = _with(_gpu(busy_s=900, utilization_s=1000, energy_joules=5e5, energy_s=1000))
    now = _with(_gpu(busy_s=901, utilization_s=1010, energy_joules=5.02e5, energy_s=1010))
    use = measure_use(now, before)
    assert use is not None
    assert use.gpu_utilization == pytest.approx(0.1)
    assert use.gpu_power_watts == pytest.approx(200.0)
    first = measure_use(now, None)
    assert first is not None
    assert first.gpu_utilization == pytest.approx(901 / 1010, abs=1e-4)


def test_devices_add_up() -> None:
    """Utilization is a mean over devices, power and memory are those of all together."""
    now = _with(
        _gpu("a", busy_s=10, utilization_s=10, energy_joules=1000, energy_s=10,
             memory_used_bytes=30, memory_total_bytes=40),
        _gpu("b", busy_s=0, utilization_s=10, energy_joules=3000, energy_s=10,
             memory_used_bytes=10, memory_total_bytes=40),
    )  # fmt: skip
    use = measure_use(now, None)
    assert use is not None
    assert (use.gpu_utilization, use.gpu_power_watts) == (0.5, 400.0)
    assert use.gpu_memory_ratio == 0.5


def test_what_is_not_known_is_absent() -> None:
    """C106: neither a device nor a host means no use, never a use of 0."""
    assert measure_use(_with(), None) is None
    use = measure_use(_with(_gpu(memory_used_bytes=1, memory_total_bytes=4)), None)
    assert use is not None
    assert use.model_dump(exclude_none=True) == {"gpu_memory_ratio": 0.25}


def test_a_device_that_came_back_with_smaller_sums_makes_no_negative_share() -> None:
    """A share stays between 0 and 1, whatever a driver counts."""
    before = _with(_gpu(busy_s=50, utilization_s=60, energy_joules=900, energy_s=60))
    now = _with(_gpu(busy_s=10, utilization_s=70, energy_joules=100, energy_s=70))
    use = measure_use(now, before)
    assert use is not None
    assert use.gpu_utilization == 0.0
    assert use.gpu_power_watts is None


def test_a_containers_limit_goes_before_the_machine() -> None:
    """Under a limit the machine may be idle and the rank starved."""
    node = NodePart(cpu_ratio=0.1, memory_bytes=1000, memory_available_bytes=900)
    limited = ContainerPart(
        cpu_limit=4, cpu_ratio=0.95, memory_used_bytes=90, memory_limit_bytes=100
    )
    host = HostPart(node=node, container=limited, loader=LoaderPart(cpus_busy=1.5))
    use = measure_use(_with(host=host), None)
    assert use is not None
    assert (use.cpu_ratio, use.memory_ratio, use.loader_cpus) == (0.95, 0.9, 1.5)
    bare = measure_use(_with(host=HostPart(node=node)), None)
    assert bare is not None
    assert (bare.cpu_ratio, bare.memory_ratio, bare.loader_cpus) == (0.1, 0.1, None)
