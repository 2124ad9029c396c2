"""The GPUs of a run: a device that ranks share counts once, attempts add up, gaps are named."""

from __future__ import annotations

from typing import Any

import pytest

from costlens.account.ledger import merge
from costlens.core.device_records import GpuDriverPart, GpuPart, GpuSummary
from costlens.core.records import RankRecord
from tests.unit.account.build import START, make_record
from tests.unit.export.rehearsal import make_gpu


def _record(
    *gpus: GpuPart, attempt: int = 1, rank: int = 0, num_gpus: int = 0, **driver: Any
) -> RankRecord:
    record = make_record(attempt, rank, world_size=2)
    told = GpuDriverPart(**driver) if driver else None
    part = record.rank.model_copy(update={"num_gpus": num_gpus})
    return record.model_copy(update={"gpus": list(gpus), "gpu_driver": told, "rank": part})


def _merge(*records: RankRecord) -> GpuSummary:
    return merge(records, now=START + 10).gpu


def test_a_shared_device_counts_once() -> None:
    """C024: two ranks on one GPU used its energy once, as who watched longest measured it."""
    summary = _merge(
        _record(make_gpu(sampled_s=10, energy_joules=3000), rank=0),
        _record(make_gpu(sampled_s=20, energy_joules=6000), rank=1),
    )
    assert (summary.num_devices, summary.energy_joules) == (1, 6000)
    assert summary.power_watts == 300
    assert summary.devices[0].ranks == [0, 1]


def test_devices_of_ranks_add_up() -> None:
    """Sums over devices; shares are means over time, not over devices."""
    idle = make_gpu("GPU-b", busy_s=0, utilization_s=60, activity={}, activity_busy_s={})
    summary = _merge(_record(make_gpu()), _record(idle, rank=1))
    assert (summary.num_devices, summary.energy_joules) == (2, 12_000)
    assert summary.utilization == pytest.approx(8 / 80)
    assert summary.activity == pytest.approx({"sm": 0.4, "tensor": 0.2, "dram": 0.3})
    assert (summary.power_watts, summary.power_limit_watts) == (600, 1400)
    assert summary.throttle_s["power_cap"] == 4
    assert summary.io_bytes["pcie_receive"] == 2000
    assert summary.errors["xid"] == 2


def test_attempts_add_up_and_the_newest_is_shown() -> None:
    """Energy is that of all attempts; power and devices are those of the newest."""
    summary = _merge(
        _record(make_gpu(energy_joules=1000)),
        _record(make_gpu("GPU-z", energy_joules=500, energy_source="power"), attempt=2),
    )
    assert summary.energy_joules == 1500
    assert summary.energy_by_attempt == {"1": 1000, "2": 500}
    assert summary.energy_sources == ["counter", "power"]
    assert [device.uuid for device in summary.devices] == ["GPU-z"]
    assert summary.power_watts == 300


def test_what_is_not_measured_makes_totals_partial() -> None:
    """A device without energy, or a rank that drives GPUs and sees none, is said."""
    assert not _merge(_record(make_gpu(), num_gpus=1)).is_partial
    assert _merge(_record(make_gpu(energy_joules=None))).is_partial
    assert _merge(_record(make_gpu()), _record(rank=1, num_gpus=1)).is_partial


@pytest.mark.parametrize("word", ["no_library", "no_package", "not_opened", "reset_required"])
def test_the_driver_s_words_are_put_into_words(word: str) -> None:
    """People read a sentence, not the word that metrics carry."""
    told = _merge(_record(reason=word)).unknown
    assert told is not None
    assert "NVIDIA" in told or "nvidia-ml-py" in told
    assert "_" not in told


def test_nothing_known_says_why() -> None:
    """No GPU is null with a reason, never 0 W."""
    assert _merge(_record()).unknown == "no rank has seen a GPU"
    summary = _merge(_record(reason="version_mismatch"))
    told = "the NVIDIA driver's library and kernel module are of two versions"
    assert summary.unknown == told
    assert summary.num_devices is summary.energy_joules is summary.utilization is None


def test_a_lost_device_shows_no_power() -> None:
    """The sum of what is known, without what was last seen before the loss."""
    lost = make_gpu("GPU-b", is_lost=True, power_watts=None, memory_used_bytes=None)
    summary = _merge(_record(make_gpu(), lost))
    assert (summary.power_watts, summary.num_devices) == (300, 2)
