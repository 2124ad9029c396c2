"""slow_callbacks: other callbacks' hooks hold the training up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costlens.diagnose.between import held_up_s, is_held_up
from costlens.diagnose.data_supply import is_paced_by_loader
from costlens.diagnose.finding import Abstention, Remedy, Rule, Verdict
from costlens.diagnose.measures import MIN_SHARE, percent
from costlens.diagnose.wording import loss, milliseconds

if TYPE_CHECKING:
    from costlens.diagnose.evidence import Evidence

__all__ = ["RULE"]

_NAME = "slow_callbacks"

# How much more seldom a hook may run without anybody missing it.
_SELDOM = 10


def _judge(evidence: Evidence) -> Verdict:
    """Find hooks of callbacks that the training, or its device, stands still for.

    Saved: their time, as far as it holds the training up.
    """
    if not is_held_up(evidence, "callbacks") or is_paced_by_loader(evidence):
        return None
    held_s = held_up_s(evidence, "callbacks")
    if held_s is None:
        return Abstention(_NAME, "the device's utilization, sampled through NVML")
    if held_s < MIN_SHARE * evidence.iteration_s:
        return None
    saved, each_s = evidence.share(held_s), held_s / max(1, evidence.num_iterations)
    text = [
        (
            f"callbacks take {milliseconds(each_s)} of each iteration, "
            f"{percent(held_s / evidence.iteration_s)} of it"
        ),
    ]
    remedies = [
        Remedy("Hand what the hook does to a thread, and let the training go on", saved),
        Remedy(
            f"Let the hook return at once unless batch_idx % {_SELDOM} == 0",
            saved * (1 - 1 / _SELDOM),
        ),
    ]
    return loss(_NAME, saved, text, remedies)


RULE = Rule(_NAME, _judge)
