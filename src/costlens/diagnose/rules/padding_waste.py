"""padding_waste: a good part of what is computed is padding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costlens.diagnose.data_supply import is_paced_by_loader
from costlens.diagnose.finding import Abstention, Remedy, Rule, Verdict
from costlens.diagnose.measures import MIN_SHARE, is_on_device, percent, rise
from costlens.diagnose.wording import loss

if TYPE_CHECKING:
    from costlens.diagnose.evidence import Evidence

__all__ = ["RULE"]

_NAME = "padding_waste"

# Batches of sorted or bucketed texts still hold a tenth or so of padding.
_MIN_WASTE = 0.15

# Buckets of like length leave about a fifth of the padding.
_BUCKETED = 0.8

# What takes longer the more positions there are; the optimizer's update does not.
_GROWING = ("forward", "backward", "compute")


def _judge(evidence: Evidence) -> Verdict:
    """Find batches that hold more padding than sorting leaves.

    Saved: that share of the time in which positions are computed, for packed batches hold none.
    """
    if evidence.now.progress.slots is None:
        return None
    slots, tokens = (rise(evidence, "progress", name) for name in ("slots", "tokens"))
    if not slots:
        return None
    if tokens is None:
        return Abstention(
            _NAME, "tokens without padding: run.iteration(tokens=…), or attention_mask"
        )
    waste = 1 - min(1.0, tokens / slots)
    if waste < _MIN_WASTE or is_paced_by_loader(evidence):
        return None
    # A device that waits for its host would wait longer, were its kernels shorter.
    idle = (evidence.idle_s or 0.0) if is_on_device(evidence) else 0.0
    lost_s = waste * max(0.0, sum(evidence.time_s[name] for name in _GROWING) - idle)
    if lost_s < MIN_SHARE * evidence.iteration_s:
        return None
    saved = evidence.share(lost_s)
    text = [f"{percent(waste)} of {slots:.0f} positions are padding"]
    remedies = [
        Remedy(
            "Pack several texts into one row, with position ids and a mask that part them", saved
        ),
        Remedy(
            "Batch texts of like length: a sampler that sorts within buckets, and padding to the"
            " longest of the batch, not to max_length",
            saved * _BUCKETED,
        ),
    ]
    return loss(_NAME, saved, text, remedies)


RULE = Rule(_NAME, _judge)
