"""slow_callbacks: other callbacks' hooks hold the training up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costlens.diagnose.between import judge_between
from costlens.diagnose.finding import Remedy, Rule, Verdict
from costlens.diagnose.hooks import find_hook

if TYPE_CHECKING:
    from costlens.diagnose.evidence import Evidence

__all__ = ["RULE"]

_NAME = "slow_callbacks"

# How much more seldom a hook may run without anybody missing it.
_SELDOM = 10


def _judge(evidence: Evidence) -> Verdict:
    """Find hooks of callbacks that the training, or its device, stands still for.

    Saved: their time, as far as it holds the training up. The hook that most looks found the
    training thread in is named.
    """
    slowest = find_hook(evidence)
    subject = "callbacks take" if slowest is None else f"callbacks, foremost {slowest}, take"
    return judge_between(evidence, _NAME, "callbacks", subject, _list_remedies)


def _list_remedies(saved: float) -> list[Remedy]:
    return [
        Remedy("Hand what the hook does to a thread, and let the training go on", saved),
        Remedy(
            f"Let the hook return at once unless batch_idx % {_SELDOM} == 0",
            saved * (1 - 1 / _SELDOM),
        ),
    ]


RULE = Rule(_NAME, _judge)
