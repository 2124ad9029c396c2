"""MFU: the share of the devices' peak FLOP/s that the model's own work makes use of.

Only with a known peak and FLOPs that the user gave, or an estimate that is asked for and labelled
as one. The rank's record holds the inputs; this divides them, for a rank and for a job.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from math import isfinite

from costlens.account.hardware import Peak, find_peak
from costlens.config import Config
from costlens.core.mfu_records import FlopsPart, MfuPart
from costlens.core.records import RankPart, RankRecord

__all__ = ["describe_flops", "merge_mfu", "rank_mfu"]

_ESTIMATED_PER_TOKEN = 6


def describe_flops(config: Config, rank: RankPart, num_parameters: int | None) -> FlopsPart | None:
    """Return what a rank's MFU is made of; None where nobody asks for it.

    The estimate is 6 × parameters per token, forward and backward, attention left out.

    Args:
        config: The settings of the run.
        rank: The rank, with its GPUs and their name.
        num_parameters: Parameters of the model, where it is known.
    """
    per_token, per_step = config.flops_per_token, config.flops_per_step
    is_estimate = per_token is None and per_step is None and config.estimate_flops
    if is_estimate and num_parameters is not None:
        per_token = float(_ESTIMATED_PER_TOKEN * num_parameters)
    if per_token is None and per_step is None and not is_estimate:
        return None
    peak = _peak_of(rank, config.mfu_precision)
    known = peak if isinstance(peak, Peak) else None
    unknown = None if isinstance(peak, Peak) else peak
    if is_estimate and num_parameters is None:
        unknown = "the number of parameters is not known: no model is watched"
    return FlopsPart(
        per_token=per_token,
        per_step=None if per_token is not None else per_step,
        is_estimate=is_estimate,
        peak_flops_per_s=None if known is None else known.flops_per_s,
        precision=None if known is None else known.precision,
        peak_source=None if known is None else f"{known.source} ({known.since})",
        unknown=unknown,
    )


def rank_mfu(record: RankRecord) -> MfuPart:
    """Return the MFU of one rank over its attempt."""
    return merge_mfu([record])


def merge_mfu(records: Sequence[RankRecord]) -> MfuPart:
    """Return the MFU of a job: the work of all ranks over the peak of all their devices.

    Args:
        records: The ranks' records of one attempt.
    """
    asked = [(record, record.flops) for record in records if record.flops is not None]
    if not asked:
        return MfuPart()
    achieved = peak = 0.0
    for record, flops in asked:
        done = _work_per_s(record, flops)
        if isinstance(done, str):
            return MfuPart(unknown=done)
        achieved += done
        peak += (flops.peak_flops_per_s or 0.0) * _num_devices(record.rank)
    if len(asked) < len(records) or peak <= 0 or not isfinite(achieved):
        return MfuPart(unknown="not every rank knows its FLOPs and the peak of its devices")
    ratio = achieved / peak
    parts = [flops for _, flops in asked]
    return MfuPart(
        # More than everything is a wrong input, not an efficient training.
        ratio=ratio if ratio <= 1 else None,
        unknown=None if ratio <= 1 else _explain_excess(ratio),
        achieved_flops_per_s=achieved,
        peak_flops_per_s=peak,
        is_estimate=any(part.is_estimate for part in parts),
        precision=" and ".join(sorted({part.precision for part in parts if part.precision})),
        peak_sources=sorted({part.peak_source for part in parts if part.peak_source}),
    )


def _work_per_s(record: RankRecord, flops: FlopsPart) -> float | str:
    rates = record.rates
    if flops.unknown is not None:
        return flops.unknown
    if flops.per_token is not None:
        tokens_per_s = rates.slots_per_s if rates.tokens_per_s is None else rates.tokens_per_s
        if tokens_per_s is None:
            return "tokens are not counted, or no iteration has been timed"
        return flops.per_token * tokens_per_s
    if rates.steps_per_s is None:
        return "steps are not counted, or no iteration has been timed"
    return (flops.per_step or 0.0) * rates.steps_per_s / record.rank.world_size


def _peak_of(rank: RankPart, precision: str | None) -> Peak | str:
    if rank.num_gpus == 0:
        return "the rank drives no GPU, and the peak of a CPU is not known"
    if rank.accelerator is None:
        return "the product name of the GPU is not known"
    return find_peak(rank.accelerator, precision)


def _num_devices(rank: RankPart) -> float:
    return float(Decimal(rank.gpu_share or rank.num_gpus))


def _explain_excess(ratio: float) -> str:
    return (
        f"the FLOPs would be {ratio:.1f} times the devices' peak: the FLOPs given, or the "
        "precision of the peak (COSTLENS_MFU_PRECISION), cannot be right"
    )
