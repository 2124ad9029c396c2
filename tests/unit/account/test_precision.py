"""The precision of a run over its ranks and attempts, and what skipped steps cost."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from costlens.account.ledger import merge
from costlens.core.precision_records import PrecisionPart
from costlens.core.records import RankRecord
from costlens.export.console import render
from tests.unit.account.build import START, make_price, make_record


def record(attempt: int = 1, rank: int = 0, **parts: Any) -> RankRecord:
    """Return the record of a rank that trained in fp16 for 100 s unless told otherwise."""
    told = {"requested": "auto", "effective": "fp16", "reason": "a GPU of 7.0", **parts}
    price = told.pop("price", make_price("3.60"))
    skipped = told.get("skipped_steps")
    return make_record(
        attempt,
        rank,
        world_size=told.pop("world_size", 1),
        time_s={"forward": 100.0},
        price=price,
        progress={"iterations": 50, "optimizer_steps": 40, "skipped_steps": skipped},
        precision=PrecisionPart(**told),
    )


def test_time_and_money_are_sums_and_the_scale_is_the_newest() -> None:
    """3.60 an hour are 0.001 a second: 2 s of attempt 1 and 3 s of attempt 2 cost 0.005."""
    first = record(skipped_steps=4, skipped_s=2.0, loss_scale=1024.0)
    second = record(2, skipped_steps=6, skipped_s=3.0, loss_scale=512.0, min_loss_scale=256.0)
    part = merge([second, first], now=START + 5000).precision
    assert (part.requested, part.effective, part.reason) == ("auto", "fp16", "a GPU of 7.0")
    assert (part.skipped_steps, part.skipped_s, part.skipped_cost) == (10, 5.0, "0.005")
    assert (part.loss_scale, part.min_loss_scale) == (512.0, 256.0)


def test_ranks_skip_together_and_pay_each() -> None:
    """The steps are the job's, the time and the money those of both ranks."""
    ranks = [record(rank=r, world_size=2, skipped_steps=4, skipped_s=2.0) for r in (0, 1)]
    part = merge(ranks, now=START + 5000).precision
    assert (part.skipped_steps, part.skipped_s, part.skipped_cost) == (4, 4.0, "0.004")


def test_without_a_price_there_is_no_money() -> None:
    """And without a record that tells, there is no precision at all."""
    part = merge([record(skipped_steps=1, skipped_s=1.0, price=None)], now=START + 5000).precision
    assert (part.skipped_s, part.skipped_cost) == (1.0, None)
    assert merge([make_record(time_s={"forward": 1.0})], now=START + 5000).precision is None


def test_ranks_and_attempts_that_differ_are_named() -> None:
    """Ranks must agree, and a resumed run that changes is no longer quite the same."""
    mixed = [record(rank=0, world_size=2), record(rank=1, world_size=2, effective="bf16")]
    (problem,) = merge(mixed, now=START + 5000).problems
    assert "attempt 1: ranks compute in bf16 and fp16" in problem
    changed = [record(1), record(2, effective="bf16")]
    assert "attempt 2 computes in bf16, the one before in fp16" in str(
        merge(changed, now=START + 5000).problems
    )


def page(*records: RankRecord) -> str:
    """Return the report as it is printed, spaces joined."""
    console = Console(file=io.StringIO(), width=100)
    render(merge(records, now=START + 5000), console, now=START + 5000)
    return " ".join(console.file.getvalue().split())


def test_the_report_says_what_and_why_and_what_it_cost() -> None:
    """One row: format, setting, reason, scale, skipped steps with their time and money."""
    shown = page(record(skipped_steps=4, skipped_s=2.0, loss_scale=1024.0))
    assert "fp16 · auto: a GPU of 7.0 · loss scale 1024 · 4 skipped steps took 2.00 s" in shown
    assert "0.002" in shown
    off = {"requested": "off", "effective": "fp32", "reason": "off", "skipped_steps": 0}
    assert "fp32" not in page(record(**off))
