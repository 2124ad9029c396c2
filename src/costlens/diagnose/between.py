"""What the host does between the batches, and what of it holds the training up."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from costlens.diagnose.copies import copied_s
from costlens.diagnose.data_supply import is_paced_by_loader, steady_wait_s
from costlens.diagnose.finding import Abstention, Remedy, Verdict
from costlens.diagnose.launching import MIN_IDLE_SHARE
from costlens.diagnose.measures import MIN_SHARE, is_event, is_on_device, percent
from costlens.diagnose.wording import loss, milliseconds

if TYPE_CHECKING:
    from costlens.diagnose.evidence import Evidence

__all__ = ["held_up_s", "is_held_up", "judge_between"]


def is_held_up(evidence: Evidence, phase: str) -> bool:
    """Return whether the host spends enough in a phase for it to hold the training up.

    Args:
        evidence: The evidence.
        phase: A phase of iterations.
    """
    host_s = evidence.host_s[phase]
    return host_s >= MIN_SHARE * evidence.iteration_s and not is_event(evidence, host_s)


def held_up_s(evidence: Evidence, phase: str) -> float | None:
    """Return for how long a phase of the host holds the training up; None where that is unknown.

    Without a device all of it. With one the lesser of it and the time in which no kernel ran: a
    host that waits for the device inside the phase, or runs ahead of it, holds nothing up.

    Args:
        evidence: The evidence.
        phase: A phase of iterations.
    """
    if not is_on_device(evidence):
        return evidence.time_s[phase]
    idle = evidence.steady_idle_s
    if idle is None:
        return None
    idle = max(0.0, idle - copied_s(evidence))
    if idle < MIN_IDLE_SHARE * evidence.iteration_s:
        return 0.0
    if evidence.now.loading is not None and evidence.now.loading.num_workers == 0:
        # Making a batch is work of the same host: less of any is as good as less of another.
        idle += steady_wait_s(evidence)
    return min(idle, evidence.host_s[phase])


def judge_between(
    evidence: Evidence,
    name: str,
    phase: str,
    subject: str,
    remedies: Callable[[float], list[Remedy]],
) -> Verdict:
    """Return what a phase between the batches costs, where it holds the training up.

    Args:
        evidence: The evidence.
        name: The finding it would be.
        phase: A phase of iterations.
        subject: What takes the time, with its verb.
        remedies: Returns what would help, of the share that mending the cause would save.
    """
    if not is_held_up(evidence, phase) or is_paced_by_loader(evidence):
        return None
    held_s = held_up_s(evidence, phase)
    if held_s is None:
        return Abstention(name, "the device's utilization, sampled through NVML")
    if held_s < MIN_SHARE * evidence.iteration_s:
        return None
    saved, each_s = evidence.share(held_s), held_s / max(1, evidence.num_iterations)
    text = [
        (
            f"{subject} {milliseconds(each_s)} of each iteration, "
            f"{percent(held_s / evidence.iteration_s)} of it"
        ),
    ]
    return loss(name, saved, text, remedies(saved))
