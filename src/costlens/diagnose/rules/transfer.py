"""transfer: the device stands still while a batch is copied to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costlens.diagnose.data_supply import is_paced_by_loader
from costlens.diagnose.finding import Abstention, Remedy, Rule, Verdict
from costlens.diagnose.launching import MIN_IDLE_SHARE
from costlens.diagnose.measures import MIN_SHARE, is_on_device, percent, received_bytes
from costlens.diagnose.wording import loss

if TYPE_CHECKING:
    from costlens.diagnose.evidence import Evidence

__all__ = ["RULE"]

_NAME = "transfer"

# What PCIe 4.0 with 16 lanes carries one way, measured; from pageable memory it is 3 to 6 GB/s.
_PINNED_BYTES_PER_S = 25e9

# Not all that a device receives are batches: no more than pinned memory leaves of such a copy.
_MAX_COPY = 0.25


def _judge(evidence: Evidence) -> Verdict:
    """Find copies of batches that the device waits for.

    The host's time in a copy alone tells nothing, for that is where earlier work of the device
    surfaces: what counts is the lesser of it and the time in which no kernel ran. Saved: that time,
    for the host does not wait for a copy from pinned memory, less what such a copy itself takes
    between the kernels.
    """
    if not is_on_device(evidence) or is_paced_by_loader(evidence):
        return None
    host_s = evidence.host_s["transfer"]
    if host_s < MIN_SHARE * evidence.iteration_s:
        return None
    idle = evidence.steady_idle_s
    if idle is None:
        return Abstention(_NAME, "the device's utilization, sampled through NVML")
    exposed_s = min(idle, host_s)
    exposed_s -= min(received_bytes(evidence) / _PINNED_BYTES_PER_S, _MAX_COPY * exposed_s)
    if exposed_s < MIN_IDLE_SHARE * evidence.iteration_s:
        return None
    saved = evidence.share(exposed_s)
    pinned = None if evidence.now.loading is None else evidence.now.loading.pin_memory
    text = [
        f"the host spends {percent(host_s / evidence.iteration_s)} of the iterations in copies",
        f"the device runs no kernel in {percent(idle / evidence.iteration_s)} of them",
    ]
    ahead = "the copy is several times as fast, and the host goes on"
    if pinned:
        text.append("the loader pins its memory, so what copies waits for it")
        remedies = [Remedy(f"batch.to(device, non_blocking=True): {ahead}", saved)]
    else:
        text.append("the loader does not pin its memory" if pinned is False else "")
        both = "DataLoader(pin_memory=True) and batch.to(device, non_blocking=True)"
        remedies = [Remedy(f"{both}: {ahead}", saved)]
    remedies.append(Remedy("Copy less: send integers of few bytes, and convert on the device"))
    return loss(_NAME, saved, [line for line in text if line], remedies)


RULE = Rule(_NAME, _judge)
