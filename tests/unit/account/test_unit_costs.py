"""What a token, a sample, a step or an hour of full use costs."""

from __future__ import annotations

import json
from decimal import Decimal, localcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costlens.account.cost import price_run
from costlens.account.unit_costs import cost_per_effective_unit
from tests.unit.account.build import make_price, make_record


def _gpu_rank(rank: int = 0, **facts: Any) -> Any:
    record = make_record(
        rank=rank,
        world_size=2,
        time_s={"startup": 1800.0, "compute": 1800.0},
        price=make_price("2", unit="gpu"),
        progress={"iterations": 10, "optimizer_steps": 8, "samples": 40, "tokens": 1000},
    )
    return record.model_copy(
        update={"rank": record.rank.model_copy(update={"num_gpus": 1, **facts})}
    )


def test_samples_are_summed_and_steps_are_made_together() -> None:
    """Two ranks at 2.00 an hour: 4.00 for 80 samples, and for the 8 steps they made together."""
    cost = price_run([_gpu_rank(0), _gpu_rank(1, local_rank=1)], {1: 4})
    assert (cost.total, cost.per_sample, cost.per_step) == ("4.00", "0.05", "0.50")
    assert cost.per_productive_step == "1.00"
    assert cost.per_gpu_hour == "2.00"


def test_hours_of_use_are_dearer_than_paid_hours() -> None:
    """Half of the time trained: an effective GPU-hour costs twice as much; the share is named."""
    records = [_gpu_rank(0), _gpu_rank(1, local_rank=1)]
    cost = price_run(records, {1: 0}, {"gpu_utilization": 0.25, "goodput": 0.5})
    assert cost.per_effective_gpu_hour == "4.00"
    assert (cost.cost_per_effective_unit, cost.utilization) == ("8.00", 0.25)
    assert cost.utilization_name == "gpu_utilization"
    cost = price_run(records, {1: 0}, {"gpu_utilization": None, "goodput": 0.5})
    assert (cost.cost_per_effective_unit, cost.utilization_name) == ("4.00", "goodput")


def test_an_hour_costs_its_price_however_short_the_run() -> None:
    """A rounded total of a few digits does not show in the money of an hour."""
    record = _gpu_rank().model_copy(update={"time_ns": {"compute": 1234}, "total_ns": 1234})
    assert price_run([record], None).per_gpu_hour == "2.00"


def test_idle_devices_count_as_paid_hours() -> None:
    """Of two allocated GPUs one is driven: two hours are paid, at the price of each."""
    cost = price_run([_gpu_rank(unowned_gpus=1)], {1: 0}, {"goodput": 0.25})
    assert (cost.total, cost.per_gpu_hour) == ("4.00", "2.00")
    assert cost.per_effective_gpu_hour == "8.00"


@pytest.mark.parametrize(
    ("utilization", "unit_cost"), [("0.5", "20"), ("0", "1000"), ("0.001", "1000"), ("1", "10")]
)
def test_a_device_that_hardly_works_costs_a_hundredfold_at_most(
    utilization: str, unit_cost: str
) -> None:
    """The formula: cost / max(utilization, 0.01)."""
    assert cost_per_effective_unit(Decimal(10), Decimal(utilization)) == Decimal(unit_cost)


@pytest.mark.parametrize(
    "progress", [{"iterations": 5, "tokens": 0, "samples": 0}, {"iterations": 0}, {"iterations": 5}]
)
def test_nothing_is_divided_by_zero_or_by_what_is_unknown(progress: dict) -> None:
    """C108: no tokens, samples, steps or GPUs: the ratios are absent, the total is there."""
    record = make_record(time_s={"compute": 5.0}, price=make_price("3600"), progress=progress)
    cost = price_run([record], {1: 0}, {"goodput": 0.0, "gpu_utilization": None})
    assert cost.total == "5.00"
    ratios = {
        *("per_1k_tokens", "per_million_tokens", "per_million_productive_tokens", "per_sample"),
        *("per_step", "per_productive_step", "per_gpu_hour", "per_effective_gpu_hour"),
        "cost_per_effective_unit",
    }
    assert {name for name in ratios if getattr(cost, name) is not None} == set()
    json.loads(cost.model_dump_json(), parse_constant=pytest.fail)


def test_steps_have_no_price_while_a_rank_has_none() -> None:
    """All ranks make a step together: the money of some of them is not its price."""
    silent = _gpu_rank(1, local_rank=1).model_copy(update={"price": None})
    cost = price_run([_gpu_rank(0), silent], {1: 0})
    assert (cost.is_partial, cost.per_step, cost.per_productive_step) == (True, None, None)
    assert cost.per_sample == "0.05", "money and samples of the same rank"


@given(
    samples=st.integers(1, 10**12),
    steps=st.integers(1, 10**9),
    lost=st.integers(0, 10**9),
    hours=st.integers(1, 10**6),
    use=st.floats(0, 1),
)
def test_ratios_times_counts_are_the_total(
    samples: int, steps: int, lost: int, hours: int, use: float
) -> None:
    """Each ratio, multiplied with what it is divided by, gives the money back."""
    record = make_record(
        time_s={"compute": 3600.0 * hours},
        price=make_price("1.7", unit="gpu"),
        progress={"iterations": 1, "optimizer_steps": steps, "samples": samples},
    )
    rank = record.rank.model_copy(update={"num_gpus": 1})
    cost = price_run(
        [record.model_copy(update={"rank": rank})], {1: min(lost, steps)}, {"goodput": use}
    )
    total = Decimal(cost.total or "-1")
    assert Decimal(cost.per_sample or "-1") * samples == pytest.approx(total, rel=Decimal("0.01"))
    assert Decimal(cost.per_step or "-1") * steps == pytest.approx(total, rel=Decimal("0.01"))
    assert (cost.per_productive_step is None) == (lost >= steps)
    assert cost.per_gpu_hour == "1.70"
    effective = Decimal(cost.per_effective_gpu_hour or "-1")
    assert effective == pytest.approx(
        Decimal("1.7") / max(Decimal(use), Decimal("0.01")), rel=Decimal("0.000001")
    )


def test_the_host_applications_decimal_context_does_not_matter() -> None:
    """C107: a training script may set a coarse decimal precision; ratios and energy stay exact."""
    records = [_gpu_rank(0), _gpu_rank(1, local_rank=1)]
    progress = records[0].progress.model_copy(update={"tokens": 123_457, "samples": 1237})
    records[0] = records[0].model_copy(update={"progress": progress})
    exact = price_run(records, {1: 3}, {"goodput": 0.337})
    with localcontext() as context:
        context.prec = 2
        assert price_run(records, {1: 3}, {"goodput": 0.337}) == exact
