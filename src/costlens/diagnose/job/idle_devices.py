"""idle_devices: devices are paid for that no rank drives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costlens.diagnose.finding import JobRule, Remedy, Verdict
from costlens.diagnose.wording import loss

if TYPE_CHECKING:
    from costlens.diagnose.job_evidence import JobEvidence

__all__ = ["RULE"]

_NAME = "idle_devices"


def _judge(evidence: JobEvidence) -> Verdict:
    """Find allocated GPUs that no rank drives.

    Saved: their share of all devices that are paid for.
    """
    idle_device_s = driven_s = 0.0
    num_idle, hosts = 0, []
    for own in evidence.ranks:
        rank = own.now.rank
        share = float(rank.gpu_share) if rank.gpu_share is not None else rank.num_gpus
        driven_s += own.total_s * share
        if rank.unowned_gpus:
            idle_device_s += own.total_s * rank.unowned_gpus
            num_idle += rank.unowned_gpus
            hosts.append(rank.host_name)
    if num_idle == 0 or idle_device_s <= 0:
        return None
    saved = idle_device_s / (idle_device_s + driven_s)
    per_node = num_idle / len(hosts)
    text = [f"{num_idle} GPUs of {', '.join(hosts[:4])} are paid for, and no rank drives them"]
    remedies = [
        Remedy(
            f"Start {per_node:.0f} more ranks a node (torchrun --nproc-per-node, Trainer(devices=))"
            f" or ask for {per_node:.0f} GPUs fewer (--gpus-per-node, nvidia.com/gpu)",
            saved,
        ),
        Remedy("CUDA_VISIBLE_DEVICES may hide them from the ranks"),
    ]
    return loss(_NAME, saved, text, remedies)


RULE = JobRule(_NAME, _judge, needs_steps=False)
