"""slow_logging: loggers and progress bars hold the training up."""

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

_NAME = "slow_logging"

# Lightning's own default is every 50 batches.
_SELDOM = 50


def _judge(evidence: Evidence) -> Verdict:
    """Find logging that the training, or its device, stands still for.

    Saved: its time, as far as it holds the training up.
    """
    if not is_held_up(evidence, "logging") or is_paced_by_loader(evidence):
        return None
    held_s = held_up_s(evidence, "logging")
    if held_s is None:
        return Abstention(_NAME, "the device's utilization, sampled through NVML")
    if held_s < MIN_SHARE * evidence.iteration_s:
        return None
    saved, each_s = evidence.share(held_s), held_s / max(1, evidence.num_iterations)
    text = [
        (
            f"logging takes {milliseconds(each_s)} of each iteration, "
            f"{percent(held_s / evidence.iteration_s)} of it"
        ),
    ]
    remedies = [
        Remedy(
            f"Log less often: Trainer(log_every_n_steps={_SELDOM}), and"
            f" TQDMProgressBar(refresh_rate={_SELDOM})",
            saved * (1 - 1 / _SELDOM),
        ),
        Remedy("Use a logger that writes from a thread of its own, to a local disk"),
    ]
    return loss(_NAME, saved, text, remedies)


RULE = Rule(_NAME, _judge)
