"""Which share of its devices each rank pays for."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from costlens.account.cost import price_run
from costlens.account.ledger import merge
from costlens.account.sharing import own_share, share_devices
from costlens.core.device_records import GpuPart
from costlens.core.job_records import JobPart
from costlens.core.records import RankRecord
from tests.unit.account.build import START, make_price, make_record


def _rank(
    rank: int, *uuids: str, local_world_size: int = 1, allocated: int | None = None, **facts: Any
) -> RankRecord:
    price = make_price("100", unit="gpu", share=str(len(uuids)))
    record = make_record(
        rank=rank, world_size=local_world_size, time_s={"compute": 36.0}, price=price
    )
    part = record.rank.model_copy(
        update={
            "num_gpus": len(uuids),
            "local_rank": rank,
            "local_world_size": local_world_size,
            **facts,
        }
    )
    return record.model_copy(
        update={
            "rank": part,
            "gpus": [GpuPart(uuid=uuid) for uuid in uuids],
            "job": None if allocated is None else JobPart(scheduler="slurm", num_gpus=allocated),
        }
    )


def test_ranks_that_share_a_device_share_its_price() -> None:
    """C024: four ranks on one GPU pay for one GPU together."""
    records = [_rank(rank, "GPU-0", local_world_size=4) for rank in range(4)]
    cost = price_run(share_devices(records), None)
    assert cost.total == "1.00"
    assert price_run(share_devices([_rank(0, "A"), _rank(1, "B")]), None).total == "2.00"


def test_a_device_in_two_attempts_is_not_shared() -> None:
    """One after the other is not at the same time."""
    first, second = _rank(0, "GPU-0"), _rank(0, "GPU-0")
    later = second.model_copy(update={"attempt": second.attempt.model_copy(update={"number": 2})})
    assert share_devices([first, later]) == [first, later]


def test_slices_of_one_gpu_are_shares_of_it() -> None:
    """Two 3g slices of an A100 are six sevenths; a slice of an unknown GPU has no share."""
    slices = [
        GpuPart(uuid=f"MIG-{n}", parent_uuid="GPU-0", name="NVIDIA A100-SXM4-40GB", mig_slices=3)
        for n in range(2)
    ]
    assert abs(Decimal(own_share(slices) or 0) * 7 - 6) < Decimal("1e-20")
    assert own_share([GpuPart(uuid="GPU-0")]) is None, "a whole GPU is one, as everyone knows"
    assert own_share([slices[0].model_copy(update={"name": "odd"})]) is None


def test_idle_devices_are_those_that_no_rank_of_the_node_names() -> None:
    """Eight are allocated, two ranks share one and a third has its own: six are idle."""
    records = [
        _rank(0, "A", local_world_size=3, allocated=8),
        _rank(1, "A", local_world_size=3, allocated=8),
        _rank(2, "B", local_world_size=3, allocated=8),
    ]
    shared = share_devices(records)
    assert [record.rank.unowned_gpus for record in shared] == [6, None, None]
    cost = price_run(shared, None)
    assert (cost.total, cost.by_phase["idle_device"]) == ("8.00", "6.00")
    # A node of which a rank's record is missing is left as its local rank 0 saw it.
    told = _rank(0, "A", local_world_size=3, allocated=8, unowned_gpus=5)
    assert share_devices([told])[0].rank.unowned_gpus == 5


def test_idle_devices_are_in_the_time_and_the_money_of_the_run() -> None:
    """Phases of the run, its goodput and its money add up with them; the rank's own do without."""
    record = merge([_rank(0, "A", allocated=3)], now=START + 60)
    assert record.time_s["idle_device"] == 72.0
    assert record.time_s["total"] == 36.0 * 3
    spent = sum(s for name, s in record.time_s.items() if name != "total")
    assert spent == record.time_s["total"]
    assert record.cost.by_phase == {"compute": "1.00", "idle_device": "2.00"}
    idle = record.goodput.badput["idle_device"]
    assert (idle.time_s, idle.money) == (72.0, "2.00")
    assert record.problems == []


def test_records_without_all_their_devices_stay_as_they_are() -> None:
    """What a rank does not name, nobody can divide."""
    record = _rank(0, "A", num_gpus=2)
    other = _rank(1, "A")
    assert share_devices([record, other])[0] is record


@given(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True), max_size=8))
def test_all_devices_are_paid_once(ranks: list) -> None:
    """However devices are spread over ranks, together the ranks pay for each device once."""
    records = [
        _rank(number, *(f"GPU-{uuid}" for uuid in uuids)) for number, uuids in enumerate(ranks)
    ]
    shares = [Decimal(record.price.share) for record in share_devices(records) if record.price]
    devices = {uuid for uuids in ranks for uuid in uuids}
    assert abs(sum(shares) - len(devices)) < Decimal("1e-20")
