"""recompilation: torch.compile compiles again and again while the training runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costlens.diagnose.finding import Remedy, Rule, Verdict
from costlens.diagnose.lumps import compile_s
from costlens.diagnose.measures import MIN_SHARE, percent, reach, rise
from costlens.diagnose.wording import loss

if TYPE_CHECKING:
    from costlens.diagnose.evidence import Evidence

__all__ = ["RULE"]

_NAME = "recompilation"

# A model, its evaluation and a last batch of another size are compiled once each.
_LEAST_COMPILATIONS = 4


def _judge(evidence: Evidence) -> Verdict:
    """Find compilations that go on after start-up.

    Saved: their time; shapes that are marked as dynamic are compiled once.
    """
    whole = evidence.whole
    num = reach(whole.now, "compiler", "num_compilations")
    if num is None or not rise(evidence, "compiler", "num_compilations"):
        return None  # whatever there was has come to an end
    num -= reach(whole.now, "compiler", "num_startup") or 0.0
    lost_s = compile_s(whole)
    if num < _LEAST_COMPILATIONS or lost_s < MIN_SHARE * whole.iteration_s:
        return None
    saved = lost_s / whole.iteration_s * evidence.share(evidence.iteration_s)
    text = [
        (
            f"{num:.0f} compilations took {lost_s:.0f} s after start-up, "
            f"{percent(lost_s / whole.iteration_s)} of the iterations"
        )
    ]
    remedies = [
        Remedy(
            "torch.compile(model, dynamic=True), or torch._dynamo.mark_dynamic on what varies",
            saved,
        ),
        Remedy("Pad batches to a few fixed lengths, and DataLoader(drop_last=True)"),
        Remedy("TORCH_LOGS=recompiles says which guard fails"),
    ]
    return loss(_NAME, saved, text, remedies)


RULE = Rule(_NAME, _judge)
