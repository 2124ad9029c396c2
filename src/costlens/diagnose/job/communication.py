"""communication: all ranks spend long in collectives, and none of them is to blame.

DDP times its all-reduce in one pass of a hundred. Where nobody does, the units of the devices tell,
less exactly: how many of them work while a device computes depends on the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from costlens.diagnose.collectives import LEAST_REDUCING, least_reduce_s, usual_reduce_s
from costlens.diagnose.finding import Abstention, JobRule, Remedy, Verdict
from costlens.diagnose.launching import MIN_IDLE_SHARE
from costlens.diagnose.measures import MIN_SHARE, is_on_device, percent
from costlens.diagnose.pace import BUSY_SM, find_activity
from costlens.diagnose.wording import loss

if TYPE_CHECKING:
    from costlens.diagnose.evidence import Evidence
    from costlens.diagnose.job_evidence import JobEvidence

__all__ = ["RULE"]

_NAME = "communication"

# How many of its multiprocessors a device keeps active with a collective: NCCL takes 8 to 24 of the
# 132 of an H100 for its channels.
_SPINNING_SM = 0.1

_LEAST_RANKS = 2

# Above it, it may as well be kernels that do not fill the device: sound trainings keep from 0.75 of
# their multiprocessors active to nearly all of them.
_MAX_SM = 0.68


def _judge(evidence: JobEvidence) -> Verdict:
    """Find ranks that wait for their gradients, the one that comes last as well.

    Saved: what nothing hides of the all-reduce on the rank that waits least, and what is booked
    beside it; untimed, of what devices do, by ``busy = compute + collectives`` and
    ``active = 0.85 compute + 0.1 collectives``.
    """
    if len(evidence.ranks) < _LEAST_RANKS:
        return None
    iteration_s = sum(own.iteration_s for own in evidence.ranks)
    # Who waits longer than that waits for another rank, and not for the exchange.
    booked_s = len(evidence.ranks) * min(own.time_s["communication"] for own in evidence.ranks)
    timed_s = _timed_s(evidence)
    reduced_s = timed_s if timed_s and timed_s >= LEAST_REDUCING * iteration_s else 0.0
    lost_s: float | Abstention | None = reduced_s
    how = ""
    if booked_s >= MIN_SHARE * iteration_s:
        lost_s = booked_s + reduced_s
    elif timed_s is None:
        lost_s, how = _estimate_s(evidence), ", as their units tell"
    if not isinstance(lost_s, float):
        return lost_s
    if lost_s < MIN_SHARE * iteration_s:
        return None
    return _tell(evidence, lost_s, f"{percent(lost_s / iteration_s)} of iterations{how}")


def _timed_s(evidence: JobEvidence) -> float | None:
    """Return the seconds of all ranks in the all-reduce itself; None where nobody times it."""
    is_late = evidence.starvation is not None or any(own.supply for own in evidence.ranks)
    # Where ranks come late in turn, none of them waits for the all-reduce alone.
    each_s = least_reduce_s(evidence.ranks) if is_late else usual_reduce_s(evidence.ranks)
    return None if each_s is None else each_s * sum(own.num_iterations for own in evidence.ranks)


def _estimate_s(evidence: JobEvidence) -> float | Abstention | None:
    """Return the seconds of all ranks in collectives; None where something else explains them."""
    if not all(is_on_device(own) for own in evidence.ranks):
        return Abstention(_NAME, "time in collectives: on CPUs it is part of the backward pass")
    if evidence.starvation is not None or any(own.supply is not None for own in evidence.ranks):
        return Abstention(_NAME, "batches in time: ranks that wait for a late one spin as well")
    found = [_find_share(own) for own in evidence.ranks]
    known = [share for share in found if share is not None]
    if len(known) < len(found):
        return Abstention(_NAME, "activity of the multiprocessors: NVML tells it from Hopper on")
    slowness = evidence.slowness
    if min(known) <= 0 or (slowness is not None and slowness.ranks):
        return None
    return sum(s * own.iteration_s for s, own in zip(known, evidence.ranks, strict=True))


def _find_share(own: Evidence) -> float | None:
    """Return the share of iterations in collectives; 0 where units are active, None unknown."""
    active, idle = find_activity(own, "sm"), own.idle_s
    if active is None or idle is None or own.iteration_s <= 0:
        return None
    if idle >= MIN_IDLE_SHARE * own.iteration_s:
        return 0.0  # a device that waits for the others spins
    busy = 1 - (idle + own.time_s["data_wait"]) / own.iteration_s
    # The mean is over all of the evidence, in which nothing else keeps units active.
    active *= own.total_s / (own.iteration_s + own.time_s["validation"])
    if active >= _MAX_SM * busy:
        return 0.0
    return max(0.0, (BUSY_SM * busy - active) / (BUSY_SM - _SPINNING_SM))


def _tell(evidence: JobEvidence, lost_s: float, share: str) -> Verdict:
    saved = evidence.share(lost_s)
    text = [f"collectives take {share}, and no rank is slower than the others"]
    remedies = [
        Remedy(
            "accumulate_grad_batches=4 (plain: model.no_sync() around all but the last): gradients"
            " are exchanged a quarter as often",
            saved * 3 / 4,
        ),
        Remedy(
            "model.register_comm_hook(None, default_hooks.bf16_compress_hook): half the bytes",
            saved / 2,
        ),
        Remedy("Put the ranks nearer together, and see which links NCCL uses: NCCL_DEBUG=INFO"),
        Remedy("DDP(gradient_as_bucket_view=True, bucket_cap_mb=100): fewer, larger messages"),
    ]
    return loss(_NAME, saved, text, remedies)


RULE = JobRule(_NAME, _judge)
