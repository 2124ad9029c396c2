"""slow_logging: loggers and progress bars hold the training up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costlens.diagnose.between import judge_between
from costlens.diagnose.finding import Remedy, Rule, Verdict

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
    return judge_between(evidence, _NAME, "logging", "logging takes", _list_remedies)


def _list_remedies(saved: float) -> list[Remedy]:
    return [
        Remedy(
            f"Log less often: Trainer(log_every_n_steps={_SELDOM}), and"
            f" TQDMProgressBar(refresh_rate={_SELDOM})",
            saved * (1 - 1 / _SELDOM),
        ),
        Remedy("Use a logger that writes from a thread of its own, to a local disk"),
    ]


RULE = Rule(_NAME, _judge)
