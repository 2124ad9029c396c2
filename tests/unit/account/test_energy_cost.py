"""What the energy of the GPUs cost: a line of its own."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from costlens.account.cost import price_run
from costlens.account.energy_cost import price_energy
from costlens.core.device_records import GpuPart
from costlens.core.price_records import EnergyPricePart
from costlens.core.records import RankRecord
from tests.unit.account.build import make_price, make_record


def _rank(
    rank: int = 0,
    *gpus: GpuPart,
    price: str | None = "0.30",
    currency: str = "EUR",
    attempt: int = 1,
    **facts: Any,
) -> RankRecord:
    record = make_record(attempt=attempt, rank=rank, time_s={"compute": 36.0})
    part = record.rank.model_copy(update={"num_gpus": len(gpus), **facts})
    energy = None
    if price is not None:
        energy = EnergyPricePart(amount_per_kwh=price, currency=currency, source="test")
    return record.model_copy(update={"rank": part, "gpus": [*gpus], "energy_price": energy})


def _gpu(uuid: str, joules: float | None = 3600.0) -> GpuPart:
    return GpuPart(uuid=uuid, energy_joules=joules)


def test_energy_of_four_ranks_is_that_of_four_devices_c024() -> None:
    """C024: 4 GPUs × 100 W × 36 s are 14 400 J, 4 Wh; at 0.30 per kWh they cost 0.0012."""
    cost = price_energy([_rank(rank, _gpu(f"GPU-{rank}")) for rank in range(4)])
    assert cost is not None
    assert (cost.currency, cost.total, cost.is_partial) == ("EUR", "0.0012", False)
    assert cost.energy_kwh == 0.004


def test_a_device_that_ranks_share_is_counted_once() -> None:
    """Both see the whole device; the one that looked last has all of its energy."""
    early, late = _rank(0, _gpu("GPU-0", 3000.0)), _rank(1, _gpu("GPU-0", 3600.0))
    for records in ([early, late], [late, early]):
        cost = price_energy(records)
        assert cost is not None
        assert cost.total == "0.0003"


def test_each_attempt_has_energy_of_its_own() -> None:
    """Counters begin with an attempt: the same device in two attempts counts twice."""
    cost = price_energy([_rank(0, _gpu("GPU-0")), _rank(0, _gpu("GPU-0"), attempt=2)])
    assert cost is not None
    assert cost.total == "0.0006"


def test_no_price_of_energy_is_no_line() -> None:
    """Nobody asked for it."""
    assert price_energy([_rank(0, _gpu("GPU-0"), price=None)]) is None


def test_unknown_energy_is_absent_with_the_reason_and_partial_energy_is_marked() -> None:
    """C106: a device that cannot tell its energy costs an unknown amount, not nothing."""
    silent = price_energy([_rank(0, _gpu("GPU-0", None))])
    assert silent is not None
    assert (silent.total, silent.unknown) == (None, "no device of the run could tell its energy")
    part = price_energy([_rank(0, _gpu("GPU-0"), _gpu("GPU-1", None))])
    assert part is not None
    assert (part.total, part.is_partial) == ("0.0003", True)
    unseen = price_energy([_rank(0, _gpu("GPU-0"), num_gpus=2)])
    assert unseen is not None
    assert unseen.is_partial


def test_currencies_of_energy_are_never_added() -> None:
    """C111: two currencies give no total."""
    cost = price_energy([_rank(0, _gpu("A")), _rank(1, _gpu("B"), currency="USD")])
    assert cost is not None
    assert (cost.total, cost.unknown) == (None, "prices in EUR and USD are not added")


def test_energy_is_never_inside_the_price_of_the_device() -> None:
    """The total is the devices' money alone, with and without a price of energy."""
    record = _rank(0, _gpu("GPU-0", 3.6e9)).model_copy(
        update={"price": make_price("100", unit="gpu")}
    )
    cost = price_run([record], None)
    assert cost.total == "1.00"
    assert sum(map(Decimal, cost.by_phase.values())) == Decimal("1.00")
    assert cost.energy is not None
    assert cost.energy.total == "300.00"
