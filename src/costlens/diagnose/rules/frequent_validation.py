"""frequent_validation: evaluation takes more of the time than its news is worth."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from costlens.diagnose.catching_up import caught_up_s
from costlens.diagnose.finding import Remedy, Rule, Verdict
from costlens.diagnose.measures import percent, reach
from costlens.diagnose.wording import loss

if TYPE_CHECKING:
    from costlens.diagnose.evidence import Evidence

__all__ = ["RULE"]

_NAME = "frequent_validation"

# A fifth of the time: an ordinary job, with an evaluation an epoch on a tenth of its data and no
# backward pass there, spends 3 to 5 %.
_MAX_SHARE = 0.2

# What remains once the finding is mended: twice that ordinary share.
_GOOD_SHARE = 0.1

_LEAST_EVALUATIONS = 2


def _judge(evidence: Evidence) -> Verdict:
    """Find evaluations that take more than a fifth of the training.

    Saved: their time less that of every ``k``-th of them, ``k`` being the least number with which
    they take no more than a tenth; as far as the loader does not catch up in it.
    """
    whole = evidence.whole
    spent_s, trained = whole.time_s["validation"], whole.trained_s
    if trained <= 0 or spent_s < _MAX_SHARE * trained:
        return None
    num = reach(whole.now, "attempt", "num_evaluations")
    if num is not None and num < _LEAST_EVALUATIONS:
        return None
    other_s = trained - spent_s
    good_s = _GOOD_SHARE / (1 - _GOOD_SHARE) * other_s
    every = max(2, math.ceil(spent_s / good_s)) if good_s > 0 else 2
    share = evidence.share(evidence.trained_s)
    lost_s = spent_s - caught_up_s(whole, spent_s, num or 1)
    saved = lost_s * (1 - 1 / every) / trained * share
    text = [f"evaluation takes {percent(spent_s / trained)} of the training's time"]
    if num:
        text.append(f"{num:.0f} evaluations took {spent_s / num:.1f} s each")
    remedies = [
        Remedy(
            f"Trainer(check_val_every_n_epoch={every}), or val_check_interval {every} × as long",
            saved,
        ),
        Remedy(f"Trainer(limit_val_batches={1 / every:.2f}): a fixed part of the data", saved),
        Remedy("Evaluate without gradients and with larger batches"),
    ]
    return loss(_NAME, saved, text, remedies)


RULE = Rule(_NAME, _judge)
