"""One cause that a device shows, one finding: through the real binding of NVIDIA's library."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from decimal import Decimal

import pytest
import torch

from costlens.cli.demo.fake_gpus.stand_in import StandIn, load_stand_in
from costlens.config import Config
from costlens.core.run_record import RunRecord
from costlens.run import Run
from tests.planted.causes import PRICE_PER_HOUR
from tests.planted.devices import DANGERS, HEALTHY, LOSSES, DevicePlant, adopt
from tests.planted.plain import train_plainly
from tests.planted.reading import check_named, findings_of, first_line, read_report

pytestmark = pytest.mark.slow


@pytest.fixture
def driver(require: Callable[[str, bool, str], None]) -> Iterator[StandIn]:
    """Return the stand-in driver of this process on its own clock; afterwards there is none."""
    require("nvml", shutil.which("gcc") is not None, "no gcc to compile the stand-in driver with")
    Run(Config(summary=False, log_level="error"), exporters=[]).open().finish()
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    stand_in = load_stand_in()
    yield stand_in
    stand_in.unload()
    torch.set_num_threads(num_threads)


@pytest.fixture
def train(driver: StandIn, monkeypatch: pytest.MonkeyPatch) -> Callable[[DevicePlant], RunRecord]:
    """Return what trains beside a driver and returns the merged record."""

    def run_beside(plant: DevicePlant) -> RunRecord:
        for name, value in plant.environ.items():
            monkeypatch.setenv(name, value)
        driver.load(plant.scenario)
        run = train_plainly(plant.loop, adopt)
        return read_report(run.config.run_dir, run.id)

    return run_beside


@pytest.mark.parametrize("name", LOSSES)
def test_a_planted_cause_is_the_one_finding(
    train: Callable[[DevicePlant], RunRecord], name: str
) -> None:
    """It is named, alone, with what it costs an hour of all devices that are paid for."""
    plant = LOSSES[name]
    part = check_named(train(plant), name)
    assert part.money_per_hour is not None
    paid = PRICE_PER_HOUR * len(plant.devices)
    assert Decimal("0.15") * paid < Decimal(part.money_per_hour) < paid


@pytest.mark.parametrize("name", DANGERS)
def test_a_planted_danger_is_the_one_finding(
    train: Callable[[DevicePlant], RunRecord], name: str
) -> None:
    """It is named, alone, with the device to leave out."""
    part = check_named(train(DANGERS[name]), name.split(maxsplit=1)[0])
    assert part.money_per_hour is None
    assert part.severity == "critical"
    (place,) = part.places
    assert place.gpu_uuid == DANGERS[name].devices[0]["uuid"]


@pytest.mark.parametrize("name", HEALTHY)
def test_a_sound_device_has_no_finding(
    train: Callable[[DevicePlant], RunRecord], name: str
) -> None:
    """A device that is fully used is all right, and so is one at its power cap."""
    record = train(HEALTHY[name])
    assert findings_of(record) == []
    assert record.unjudged is None
    assert first_line(record).startswith("nothing to fix")
