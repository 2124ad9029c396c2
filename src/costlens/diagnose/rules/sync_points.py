"""sync_points: the host waits for results of the device so often that it cannot run ahead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costlens.diagnose.data_supply import is_paced_by_loader, steady_wait_s
from costlens.diagnose.finding import Abstention, Remedy, Rule, Verdict
from costlens.diagnose.launching import MIN_SYNC_SHARE, Launching, find_launching
from costlens.diagnose.measures import MIN_SHARE, percent
from costlens.diagnose.wording import loss

if TYPE_CHECKING:
    from costlens.diagnose.evidence import Evidence

__all__ = ["RULE"]

_NAME = "sync_points"

# Where hooks, loggers and copies take so much of the idling, they are what the device waits for:
# a host that waits for results once an iteration is ordinary.
_EXPLAINED = 0.85

# Kernels that the driver takes before it lets the host wait, and the least that torch needs to
# launch one: there are no more of them in an iteration than that allows.
_QUEUE = 1024
_LAUNCH_S = 5e-6

_LAUNCHING = ("forward", "backward", "optimizer", "compute")


def _judge(evidence: Evidence) -> Verdict:
    """Find a device that idles beside a host that stands in ``item()`` and its kin.

    Saved: host and device take turns now; without waits they work beside one another, and an
    iteration takes what the slower of them needs: the device its kernels, the host the time in
    which it was not seen waiting. What the host does otherwise is hidden no longer than the queue
    of the device lasts.
    """
    found = find_launching(evidence)
    if found is None or is_paced_by_loader(evidence):
        return None
    if found.sync_share is None:
        return Abstention(_NAME, "looks at the training thread: a run of a few minutes")
    if found.sync_share < MIN_SYNC_SHARE:
        return None
    if found.otherwise_s >= _EXPLAINED * found.idle_s:
        return None
    # A loop that makes its batches itself could do so beside the device as well.
    own = evidence.now.loading is not None and evidence.now.loading.num_workers == 0
    loaded_s = steady_wait_s(evidence) if own else 0.0
    host_s = (1 - found.sync_share) * found.moving_s + loaded_s
    queued_s = _queued_s(evidence, found, loaded_s)
    saved_s = found.moving_s + loaded_s - max(found.busy_s, host_s, queued_s)
    if saved_s < MIN_SHARE * evidence.iteration_s:
        return None
    saved = evidence.share(saved_s)
    text = [
        f"the device runs no kernel in {percent(found.idle_s / found.moving_s)} of the iterations",
        f"{percent(found.sync_share)} of looks found the host waiting for a result of it",
    ]
    remedies = [
        Remedy(
            "Keep .item(), .cpu(), .tolist() and print(loss) out of the loop: add losses up on the"
            " device and read them every 50 iterations",
            saved,
        ),
        Remedy("Trainer(log_every_n_steps=50), and prog_bar=False for what is logged"),
    ]
    return loss(_NAME, saved, text, remedies)


def _queued_s(evidence: Evidence, found: Launching, loaded_s: float) -> float:
    """Return what iterations take of a device whose queue runs dry while the host is elsewhere."""
    in_sync_s = (found.sync_share or 0.0) * found.moving_s
    launching_s = sum(evidence.host_s[name] for name in _LAUNCHING) - in_sync_s
    num_launches = max(0.0, launching_s) / max(1, evidence.num_iterations) / _LAUNCH_S
    ahead_s = found.busy_s * min(1.0, _QUEUE / max(1.0, num_launches))
    return found.busy_s + max(0.0, found.otherwise_s + loaded_s - ahead_s)


RULE = Rule(_NAME, _judge)
