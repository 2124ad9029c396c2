"""data_preprocessing: making batches takes more CPU time than the loop leaves for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costlens.diagnose.finding import Remedy, Rule, Verdict
from costlens.diagnose.measures import percent
from costlens.diagnose.wording import loss, milliseconds

if TYPE_CHECKING:
    from costlens.diagnose.data_supply import DataSupply
    from costlens.diagnose.evidence import Evidence

__all__ = ["RULE"]

_NAME = "data_preprocessing"


def _judge(evidence: Evidence) -> Verdict:
    """Find what no reading and no collating explains, where more workers have no CPU to run on.

    Saved: in a loop that makes its batches itself, the wait that as many workers as there are CPUs
    to spare would hide; with all CPUs taken, the whole wait, by samples that are cheaper to make.
    """
    supply = evidence.supply
    if supply is None or supply.cause != _NAME:
        return None
    num, wait = evidence.num_iterations, evidence.share(supply.wait_s * evidence.num_iterations)
    cheaper = Remedy(
        "Make a sample cheaper: do what never changes (decoding, tokenizing, resizing) once, before"
        " the training, and keep the result",
        wait,
    )
    if supply.num_workers:
        used = (supply.cpu_s or 0.0) / supply.batch_s
        spare = f"workers use {used:.1f} of the {supply.spare_cpus or used:.1f} CPUs to spare"
        text = [_describe(supply), spare]
        return loss(_NAME, wait, text, [cheaper, _more_cpus()])
    workers = supply.enough_workers
    saved = evidence.share(supply.saved_s(workers) * num)
    moved = Remedy(
        f"DataLoader(num_workers={workers}): batches are made beside the training", saved
    )
    text = [_describe(supply), "the training process makes its batches itself: num_workers=0"]
    if saved < wait / 2:  # too few CPUs for the workers that it would take
        return loss(_NAME, wait, text, [cheaper, moved])
    return loss(_NAME, saved, text, [moved, Remedy(cheaper.text)])


def _describe(supply: DataSupply) -> str:
    return (
        f"each iteration of {milliseconds(supply.batch_s)} waits {milliseconds(supply.wait_s)} "
        f"({percent(supply.wait_s / supply.batch_s)}) for its batch"
    )


def _more_cpus() -> Remedy:
    return Remedy("Take machines with more CPUs per GPU, or do the transforms on the GPU")


RULE = Rule(_NAME, _judge)
