"""checkpoint_overhead: saves hold the training up for longer than failures make it worth."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from costlens.diagnose.catching_up import caught_up_s
from costlens.diagnose.finding import Remedy, Rule, Verdict
from costlens.diagnose.measures import MIN_SHARE, percent, reach
from costlens.diagnose.wording import loss

if TYPE_CHECKING:
    from costlens.diagnose.evidence import Evidence

__all__ = ["RULE"]

_NAME = "checkpoint_overhead"

# One save, at the end or early on to prove the store, says nothing of how often they come.
_LEAST_SAVES = 2

# A failure a day: what is assumed of a job whose failures nobody has learnt from yet. The optimum
# moves with the square root of it, so ten times more failures mean three times the saves.
_FAILURES_PER_S = 1 / 86_400


def _judge(evidence: Evidence) -> Verdict:
    """Find saves that take more of the time than at the interval that loses the least.

    With a stall of ``d`` per save and failures at a rate ``r`` that interval is ``sqrt(2 d / r)``
    (Young 1974). Saved: the stalls as they are less those at that interval, or at the one that
    costlens has computed where it saves itself; as far as the loader does not need them.
    """
    whole = evidence.whole
    stall_s, trained = whole.time_s["checkpoint"], whole.trained_s
    if trained <= 0 or stall_s < MIN_SHARE * trained:
        return None
    num = reach(whole.now, "attempt", "num_saves") or reach(whole.now, "checkpoints", "num_saved")
    if not num or num < _LEAST_SAVES:
        return None
    each_s, other_s = stall_s / num, trained - stall_s
    rate = reach(evidence.now, "checkpoints", "interval", "failure_rate_per_s") or _FAILURES_PER_S
    best_s = math.sqrt(2 * each_s / rate)
    best_s = max(other_s / num, best_s)
    spared = 1 - other_s / best_s / num
    lost_s = spared * (stall_s - caught_up_s(whole, stall_s, num))
    if lost_s < MIN_SHARE * trained:
        return None
    saved = lost_s / trained * evidence.share(evidence.trained_s)
    per_iteration_s = whole.iteration_s / max(1, whole.num_iterations)
    every = max(1, round(best_s / per_iteration_s)) if per_iteration_s > 0 else 1
    text = [
        (
            f"{num:.0f} saves held the training up for {each_s:.2f} s each, "
            f"{percent(stall_s / trained)} of the time"
        ),
        (
            f"one came every {other_s / num:.0f} s of training; every {best_s:.0f} s loses the "
            f"least with a failure every {1 / rate / 3600:.0f} h"
        ),
    ]
    remedies = [
        Remedy(f"ModelCheckpoint(every_n_train_steps={every}), and none with every epoch", saved),
        Remedy(
            "COSTLENS_CHECKPOINT_URL: costlens saves beside the training, at the interval that"
            " costs the least"
        ),
    ]
    return loss(_NAME, saved, text, remedies)


RULE = Rule(_NAME, _judge)
