"""MFU: only with a known peak and known FLOPs."""

from __future__ import annotations

from typing import Any

import pytest

from costlens.account.mfu import describe_flops, merge_mfu, rank_mfu
from costlens.config import Config
from costlens.core.records import RankPart, RankRecord
from costlens.core.training_records import RatesPart
from tests.unit.account.build import make_record

A100 = "NVIDIA A100-SXM4-80GB"


def _rank(num_gpus: int = 1, accelerator: str | None = A100, **facts: Any) -> RankPart:
    return RankPart(
        rank=0, host_name="h", pid=1, num_gpus=num_gpus, accelerator=accelerator, **facts
    )


def _record(
    rank: RankPart, rates: RatesPart, parameters: int | None = None, **settings: Any
) -> Any:
    flops = describe_flops(Config(**settings), rank, parameters)
    return make_record(time_s={"compute": 1.0}, rates=rates).model_copy(
        update={"rank": rank, "flops": flops}
    )


def test_given_flops_of_a_token_over_the_peak_of_the_devices() -> None:
    """7e9 × 6 FLOPs a token at 3714 tokens/s are half of an A100's 312 TFLOP/s."""
    rates = RatesPart(tokens_per_s=312e12 / 2 / 42e9)
    mfu = rank_mfu(_record(_rank(), rates, flops_per_token=42e9))
    assert mfu.ratio == pytest.approx(0.5)
    assert (mfu.precision, mfu.is_estimate) == ("bf16", False)
    assert mfu.peak_flops_per_s == 312e12
    assert "datasheet" in mfu.peak_sources[0]


def test_flops_of_a_step_are_those_of_all_ranks_together() -> None:
    """Two ranks of two GPUs each: four devices do the work of one job."""
    rates = RatesPart(steps_per_s=2.0)
    rank = _rank(2, world_size=2)
    records = [_record(rank, rates, flops_per_step=312e12) for _ in range(2)]
    assert merge_mfu(records).ratio == pytest.approx(0.5)
    assert merge_mfu(records).peak_flops_per_s == 4 * 312e12


def test_an_estimate_is_made_only_when_asked_for_and_labelled() -> None:
    """6 × parameters a token; what is given goes first; without a model there is none."""
    rates = RatesPart(tokens_per_s=312e12 / 4 / 6e9)
    assert describe_flops(Config(), _rank(), 10**9) is None
    mfu = rank_mfu(_record(_rank(), rates, 10**9, estimate_flops=True))
    assert (mfu.ratio, mfu.is_estimate) == (pytest.approx(0.25), True)
    given = rank_mfu(_record(_rank(), rates, 10**9, estimate_flops=True, flops_per_token=3e9))
    assert (given.ratio, given.is_estimate) == (pytest.approx(0.125), False)
    unwatched = rank_mfu(_record(_rank(), rates, None, estimate_flops=True))
    assert (unwatched.ratio, unwatched.unknown) == (
        None,
        "the number of parameters is not known: no model is watched",
    )


@pytest.mark.parametrize(
    ("rank", "rates", "told"),
    [
        (_rank(0, None), RatesPart(tokens_per_s=1.0), "drives no GPU"),
        (_rank(1, None), RatesPart(tokens_per_s=1.0), "product name of the GPU is not known"),
        (_rank(1, "NVIDIA H800"), RatesPart(tokens_per_s=1.0), "peak of 'NVIDIA H800'"),
        (_rank(), RatesPart(), "tokens are not counted"),
        (_rank(), RatesPart(tokens_per_s=1e9), "times the devices' peak"),
    ],
)
def test_what_is_not_known_has_no_mfu_but_a_reason(
    rank: RankPart, rates: RatesPart, told: str
) -> None:
    """C108: no division by nothing; more than everything is a wrong input, not a ratio."""
    mfu = rank_mfu(_record(rank, rates, flops_per_token=1e9))
    assert mfu.ratio is None
    assert told in (mfu.unknown or "")


def test_nobody_asked_is_no_mfu_and_no_reason() -> None:
    """A run without FLOPs has nothing to explain."""
    mfu = rank_mfu(make_record(time_s={"compute": 1.0}))
    assert (mfu.ratio, mfu.unknown) == (None, None)


def test_one_rank_without_it_hides_the_jobs_ratio() -> None:
    """The devices of a rank that does not know would be missing below the line."""
    known = _record(_rank(), RatesPart(tokens_per_s=1.0), flops_per_token=1e9)
    mfu = merge_mfu([known, make_record(rank=1, time_s={"compute": 1.0})])
    assert mfu.ratio is None
    assert "not every rank" in (mfu.unknown or "")


def test_precision_and_shares_change_the_peak() -> None:
    """The precision that is asked for, and the part of a device that the rank has."""
    rates = RatesPart(tokens_per_s=1000.0)
    tf32 = rank_mfu(_record(_rank(), rates, flops_per_token=1e9, mfu_precision="tf32"))
    assert (tf32.peak_flops_per_s, tf32.precision) == (156e12, "tf32")
    half = rank_mfu(_record(_rank(gpu_share="0.5"), rates, flops_per_token=1e9))
    assert half.peak_flops_per_s == 156e12


def test_it_stands_in_the_record() -> None:
    """What is written is what is read."""
    record = _record(_rank(), RatesPart(tokens_per_s=1.0), flops_per_token=1e9)
    assert RankRecord.model_validate_json(record.model_dump_json()) == record
