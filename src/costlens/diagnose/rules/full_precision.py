"""full_precision: a device with units for 16-bit numbers computes in 32 bits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from costlens.diagnose.collectives import LEAST_REDUCING, reduced_s
from costlens.diagnose.data_supply import is_paced_by_loader
from costlens.diagnose.finding import Abstention, Remedy, Rule, Verdict
from costlens.diagnose.launching import behind_queue_s
from costlens.diagnose.measures import MIN_SHARE, is_on_device
from costlens.diagnose.wording import loss

if TYPE_CHECKING:
    from costlens.diagnose.evidence import Evidence

__all__ = ["RULE"]

_NAME = "full_precision"

# What a framework calls it where nothing is mixed.
_FULL = frozenset({"fp32", "32", "32-true"})

# Products whose tensor cores take bf16 or, the older ones, fp16 only.
_BF16 = (
    *("A100", "A30", "A40", "A10", "A2 ", "A16", "L4", "L40", "H100", "H200", "H800", "H20"),
    *("GH200", "B100", "B200", "B300", "GB200", "GB300", "RTX A", "RTX 30", "RTX 40", "RTX 50"),
    *("MI250", "MI300"),
)
_FP16 = ("V100", "T4", "TITAN V", "RTX 20", "QUADRO RTX")

# The least that PyTorch's own measurements of mixed precision show on networks that multiply
# matrices (1.5 to 5.5 times on a V100): what is promised should come true.
_LEAST_SPEED_UP = 1.5


def _judge(evidence: Evidence) -> Verdict:
    """Find 32-bit training on a device that could do 16 bits much faster.

    Saved: a third of the time in which kernels compute, the least that mixed precision brings, less
    what the device waits already, and would wait then. How much more it is depends on the model,
    and no counter tells.
    """
    if not is_on_device(evidence):
        return None
    best = _best_format(evidence.now.rank.accelerator)
    part = evidence.now.precision
    if part is None or part.effective is None:
        return Abstention(_NAME, "what the training computes in: run.autocast(), or a Trainer")
    if best is None or part.effective not in _FULL or is_paced_by_loader(evidence):
        return None
    waiting_s = evidence.time_s["data_wait"] + (evidence.idle_s or 0.0)
    busy_s = evidence.iteration_s - waiting_s - _reducing_s(evidence)
    gain = 1 - 1 / _LEAST_SPEED_UP
    # A device that waits for its host as it is would wait longer, were it faster; and the work that
    # its host does behind what is queued on it, beyond what shows already, would show by as much as
    # the queue gets shorter.
    behind_s = max(0.0, behind_queue_s(evidence) - waiting_s)
    lost_s = busy_s * gain - waiting_s - behind_s * gain
    if lost_s < MIN_SHARE * evidence.iteration_s:
        return None
    saved = evidence.share(lost_s)
    text = [
        (
            f"the training computes in {part.effective} on {evidence.now.rank.accelerator}, which"
            f" has units for {best}"
        ),
    ]
    flag = "bf16-mixed" if best == "bf16" else "16-mixed"
    remedies = [
        Remedy(f"COSTLENS_PRECISION=auto, or Trainer(precision='{flag}'): {best} mixed", saved),
        Remedy("torch.set_float32_matmul_precision('high'): TF32 in matrix products"),
    ]
    return replace(loss(_NAME, saved, text, remedies), is_least=True)


def _reducing_s(evidence: Evidence) -> float:
    """Return for how long kernels that compute nothing wait for other ranks' gradients."""
    if evidence.now.rank.world_size < 2:
        return 0.0
    each_s = reduced_s(evidence)
    if each_s is None:
        # More would be a finding of its own.
        return LEAST_REDUCING * evidence.iteration_s
    return each_s * evidence.num_iterations


def _best_format(accelerator: str | None) -> str | None:
    name = "" if accelerator is None else accelerator.upper() + " "
    if any(product in name for product in _BF16):
        return "bf16"
    return "fp16" if any(product in name for product in _FP16) else None


RULE = Rule(_NAME, _judge)
