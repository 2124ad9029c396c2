"""throttling: a device holds its clocks down, for it is too hot or the power supply says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costlens.diagnose.data_supply import is_paced_by_loader
from costlens.diagnose.finding import Abstention, Place, Remedy, Rule, Verdict
from costlens.diagnose.measures import MIN_SHARE, is_on_device, percent, rise_of
from costlens.diagnose.throttles import REASONS, find_held
from costlens.diagnose.wording import loss

if TYPE_CHECKING:
    from costlens.diagnose.evidence import Evidence

__all__ = ["RULE"]

_NAME = "throttling"


def _judge(evidence: Evidence) -> Verdict:
    """Find a device that is held down for a good part of the time, by something that can be mended.

    Saved: of each throttled second the share by which the clock stood below its highest, for the
    time of kernels is inverse to it; as far as the device computes.
    """
    if not is_on_device(evidence):
        return None
    held = [(found, pair) for pair in evidence.gpus if (found := find_held(pair))]
    if not held or is_paced_by_loader(evidence):
        return None
    (share, reason), pair = max(held, key=lambda each: each[0][0])
    part, sampled_s = pair[0], rise_of(pair, "sampled_s")
    lost_clock_s = rise_of(pair, "throttle_loss_s")
    if lost_clock_s is None or not sampled_s:
        return Abstention(_NAME, "the highest clock of the device, from NVML")
    lost = min(1.0, lost_clock_s / sampled_s)
    lost_s = lost * (evidence.iteration_s - evidence.time_s["data_wait"])
    if lost_s < MIN_SHARE * evidence.iteration_s:
        return None
    saved, host = evidence.share(lost_s), evidence.now.rank.host_name
    name = f"GPU {part.uuid}" + (f" at {part.pci_id}" if part.pci_id else "")
    heat = part.temperature_celsius
    text = [
        f"{name} on {host} was held down for {percent(share)} of the time, by {REASONS[reason]}"
        + ("" if heat is None else f", at {heat:.0f} °C"),
        f"that costs {percent(lost)} of its clock",
    ]
    remedies = [
        Remedy(
            "Have its cooling or power supply looked at, and leave the node out until then", saved
        ),
        Remedy("nvidia-smi -pl WATTS: a lower power limit on all ranks keeps them even"),
    ]
    return loss(_NAME, saved, text, remedies, [Place(host, part.uuid, part.pci_id)])


RULE = Rule(_NAME, _judge)
