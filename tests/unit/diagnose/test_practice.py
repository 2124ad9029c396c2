"""The checks of good practice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from costlens.account.ledger import merge
from costlens.core.checkpoint_records import CheckpointsPart
from costlens.core.precision_records import PrecisionPart
from costlens.core.preemption_records import PreemptionPart
from costlens.core.records import RankRecord
from costlens.core.telemetry_records import ExportHealth, TelemetryPart
from costlens.diagnose.practice import CHECKS, Check, Standing, check_practice
from tests.unit.account.build import START, make_price, make_record

PASS, FAIL, UNKNOWN = Standing.PASS, Standing.FAIL, Standing.UNKNOWN


def _check(name: str, *records: RankRecord) -> Check:
    run = merge(records, now=START + 9000)
    return {check.name: check for check in check_practice(run)}[name]


def _record(attempt: int = 1, *, device: str = "cuda", **parts: Any) -> RankRecord:
    record = make_record(attempt, time_s={"compute": 100.0}, **parts)
    return record.model_copy(
        update={"rank": record.rank.model_copy(update={"device": device, "num_gpus": 1})}
    )


def _named(record: RankRecord, **fields: str) -> RankRecord:
    return record.model_copy(update={"run": record.run.model_copy(update=fields)})


def _precision(effective: str | None) -> PrecisionPart:
    return PrecisionPart(requested="off", effective=effective, reason="a test")


def _left(*, is_covered: bool) -> PreemptionPart:
    because = None if is_covered else "no_time"
    return PreemptionPart(
        reason="SIGTERM", time=START, grace_s=30, is_covered=is_covered, uncovered_because=because
    )


SAVES = CheckpointsPart(url="s3://b/c", num_saved=3, last_step=90)
CASES: dict[str, tuple[str, Standing, Sequence[RankRecord]]] = {
    "bf16": ("mixed_precision", PASS, [_record(precision=_precision("bf16"))]),
    "Lightning's own name": ("mixed_precision", PASS, [_record(precision=_precision("16-mixed"))]),
    "fp32 on a GPU": ("mixed_precision", FAIL, [_record(precision=_precision("fp32"))]),
    "nobody tells": ("mixed_precision", UNKNOWN, [_record()]),
    "a CPU": (
        "mixed_precision", UNKNOWN, [_record(device="cpu", precision=_precision("fp32"))]
    ),
    "own saves": ("checkpoints", PASS, [_record(checkpoints=SAVES)]),
    "every save failed": (
        "checkpoints", FAIL,
        [_record(checkpoints=SAVES.model_copy(update={"num_saved": 0, "num_failed": 2}))],
    ),
    "Lightning's saves": (
        "checkpoints", PASS, [_record(attempt_start_step=0, attempt_saved_step=50)]
    ),
    "Lightning without a save": (
        "checkpoints", FAIL, [_named(_record(), framework="lightning 2.6")]
    ),
    "a plain loop": ("checkpoints", UNKNOWN, [_record()]),
    "time in saves": ("checkpoints", PASS, [make_record(time_s={"checkpoint": 3.0})]),
    "one attempt": ("resume_proven", UNKNOWN, [_record(attempt_start_step=0)]),
    "went on": (
        "resume_proven", PASS,
        [_record(attempt_start_step=0), _record(2, attempt_start_step=90)],
    ),
    "began anew": (
        "resume_proven", FAIL,
        [_record(attempt_start_step=0), _record(2, attempt_start_step=0)],
    ),
    "nobody knows the steps": ("resume_proven", UNKNOWN, [_record(), _record(2)]),
    "from a checkpoint": (
        "resume_proven", PASS,
        [_record(2, checkpoints=SAVES.model_copy(
            update={"resumed_from": "c", "resumed_step": 90}
        ))],
    ),
    "a version": ("dataset_version", PASS, [_named(_record(), dataset_version="v3")]),
    "no version": ("dataset_version", FAIL, [_record()]),
    "files that cannot be read": (
        "dataset_version", FAIL, [_named(_record(), dataset_unknown="no such file")]
    ),
    "left and saved": (
        "interruption_protection", PASS, [_record(preemption=_left(is_covered=True))]
    ),
    "left and lost": (
        "interruption_protection", FAIL, [_record(preemption=_left(is_covered=False))]
    ),
    "prepared": ("interruption_protection", PASS, [_record(checkpoints=SAVES)]),
    "not prepared": ("interruption_protection", FAIL, [_record()]),
    "failed": ("interruption_protection", FAIL, [_record(outcome="failed")]),
    "a price": ("price_set", PASS, [_record(price=make_price("2"))]),
    "no price": ("price_set", FAIL, [_record(price_unknown="no price: set it")]),
    "a price for a part": (
        "price_set", FAIL, [_record(price=make_price("2")), _record(2, price_unknown="none")]
    ),
    "all well": ("telemetry_healthy", PASS, [_record()]),
    "dropped": ("telemetry_healthy", FAIL, [_record(telemetry=TelemetryPart(spans_dropped=2))]),
    "a fault": ("telemetry_healthy", FAIL, [_record(telemetry=TelemetryPart(faults={"here": 1}))]),
    "an outage": (
        "telemetry_healthy", FAIL,
        [_record(telemetry=TelemetryPart(
            exports={"traces": ExportHealth(state="open", exports_failed=4)}
        ))],
    ),
    "tokens": (
        "unit_cost_tracked", PASS,
        [_record(price=make_price("2"), progress={"tokens": 100, "optimizer_steps": 1})],
    ),
    "nothing is counted": ("unit_cost_tracked", FAIL, [_record(price=make_price("2"))]),
    "no price for a unit": ("unit_cost_tracked", UNKNOWN, [_record(progress={"tokens": 100})]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_run_stands_as_its_record_says(case: str) -> None:
    """Each check passes, fails or does not know for a reason that is told, with a way out."""
    name, standing, records = CASES[case]
    check = _check(name, *records)
    assert check.standing is standing, check.why
    assert check.why
    assert (check.remedy is None) == (standing is PASS)


def test_every_check_is_judged_once_and_in_order() -> None:
    """The list on the page does not depend on the run."""
    checks = check_practice(merge([_record()], now=START))
    assert [check.name for check in checks] == [*CHECKS]
    assert {name for name, _, _ in CASES.values()} == {*CHECKS}


def test_a_reason_of_the_record_is_passed_on() -> None:
    """What the record knows of the missing price is what the check says."""
    check = _check("price_set", _record(price_unknown="no price: set COSTLENS_NODE_HOUR_PRICE"))
    assert check.why == "no price: set COSTLENS_NODE_HOUR_PRICE"


@pytest.mark.parametrize("name", ["price_set", "unit_cost_tracked"])
def test_prices_in_two_currencies_are_not_called_missing(name: str) -> None:
    """They are set, so what helps is one currency and not another price."""
    prices = [make_price("2"), make_price("3", currency="EUR")]
    records = [_record(number, price=price) for number, price in enumerate(prices, start=1)]
    check = _check(name, *records)
    assert check.standing is not PASS
    assert check.why == "prices in EUR and USD are not added"
    assert check.remedy is not None
    assert "COSTLENS_CURRENCY" in check.remedy
