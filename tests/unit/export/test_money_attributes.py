"""A period's span tells what the run has come to, beside the time and the devices."""

from __future__ import annotations

from typing import Any

import pytest

from costlens.core.budget_records import BudgetPart, RunTotalsPart
from costlens.core.mfu_records import FlopsPart
from tests.unit.export.rehearsal import Rehearsal
from tests.unit.export.test_otel_traces import Tracing

NAMES = (
    *("costlens.run.cost", "costlens.run.goodput.ratio"),
    *("costlens.budget.spent.ratio", "costlens.mfu.ratio"),
)


def attributes_of_a_period(num_gpus: int = 0, **facts: Any) -> dict[str, Any]:
    """Return the attributes of the first period's span in a run that knows these facts."""
    run = Rehearsal()
    run.state.rank = run.state.rank.model_copy(update={"num_gpus": num_gpus})
    run.probed.update(facts)
    (period,) = Tracing(run).start().windows(1).end().named("costlens.rank.period")
    return dict(period.attributes or {})


def test_a_period_tells_money_goodput_and_budget_of_the_run() -> None:
    """The same numbers under the same names as the gauges of rank 0."""
    told = attributes_of_a_period(
        run_totals=RunTotalsPart(time_s=90.0, cost={"USD": "7.25"}, goodput=0.75, num_records=1),
        budget=BudgetPart(amount="10", currency="USD", action="warn", spent="7.25", share=0.725),
    )
    assert told["costlens.run.cost"] == 7.25
    assert told["costlens.run.goodput.ratio"] == 0.75
    assert told["costlens.budget.spent.ratio"] == 0.725
    assert "costlens.mfu.ratio" not in told


def test_a_period_tells_the_mfu_of_its_rank() -> None:
    """100 tokens a second, as rehearsed, at 1e9 FLOPs each are a tenth of a peak of 1e12."""
    flops = FlopsPart(per_token=1e9, peak_flops_per_s=1e12, precision="bf16")
    told = attributes_of_a_period(num_gpus=1, flops=flops)
    assert told["costlens.mfu.ratio"] == pytest.approx(0.1)


def test_what_is_not_known_is_not_told() -> None:
    """No totals, no budget and no FLOPs are no attributes; two currencies have no one sum."""
    assert not attributes_of_a_period().keys() & set(NAMES)
    totals = RunTotalsPart(time_s=90.0, cost={"EUR": "1", "USD": "2"}, num_records=2)
    assert not attributes_of_a_period(run_totals=totals).keys() & set(NAMES)
    unknown = FlopsPart(unknown="no peak")
    assert not attributes_of_a_period(flops=unknown).keys() & set(NAMES)
