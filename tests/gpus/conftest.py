"""The stand-in driver under the real nvidia-ml-py, and a probe whose time the test tells."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from costlens.cli.demo.fake_gpus.stand_in import StandIn, load_stand_in
from costlens.core.attempt_state import AttemptState
from costlens.core.clock import NS_PER_S, anchor_now
from costlens.core.device_records import GpuDriverPart, GpuPart
from costlens.core.records import RankPart, RunPart
from costlens.observe.nvml import NvmlProbe
from costlens.observe.visible_devices import TorchDevice


@pytest.fixture
def driver(require: Callable[[str, bool, str], None]) -> Iterator[StandIn]:
    """Return the stand-in driver of this process; after the test there is no driver again."""
    require("nvml", shutil.which("gcc") is not None, "no gcc to compile the stand-in driver with")
    stand_in = load_stand_in()
    stand_in.set_time(0)
    yield stand_in
    stand_in.set_time(-1)
    stand_in.unload()


class Rig:
    """A probe of one rank on the driver's clock."""

    def __init__(
        self,
        driver: StandIn,
        *,
        visible: str | None = None,
        order: str | None = None,
        torch_devices: Sequence[TorchDevice] | None = None,
        has_own_pids: bool = True,
        **rank: Any,
    ) -> None:
        self.driver = driver
        self.torch_devices = torch_devices
        self.state = AttemptState(
            run=RunPart(id="run", name="run", costlens_version="0"),
            rank=RankPart(**{"rank": 0, "host_name": "host", "pid": 1, **rank}),
            anchor=anchor_now(time.perf_counter_ns),
            start_ns=0,
        )
        self.probe = NvmlProbe(
            self.state,
            read_visible=lambda: (visible, order),
            ask_torch=lambda: self.torch_devices,
            has_own_pids=lambda: has_own_pids,
        )
        self.probe.load()
        self.probe.start()

    def sample(self, *times_s: float) -> list[GpuPart]:
        """Return the devices after a sample at each of these times of the scenario."""
        for time_s in times_s:
            self.driver.set_time(time_s)
            self.probe.sample(round(time_s * NS_PER_S))
        return self.gpus

    @property
    def gpus(self) -> list[GpuPart]:
        return list(self.probe.contribute()["gpus"])  # type: ignore[call-overload]

    @property
    def driver_part(self) -> GpuDriverPart:
        part = self.probe.contribute()["gpu_driver"]
        assert isinstance(part, GpuDriverPart)
        return part


@pytest.fixture
def make_rig(driver: StandIn) -> Iterator[Callable[..., Rig]]:
    """Return what makes rigs on the driver, and closes them after the test."""
    rigs: list[Rig] = []

    def make(**options: Any) -> Rig:
        rigs.append(Rig(driver, **options))
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.probe.stop()
