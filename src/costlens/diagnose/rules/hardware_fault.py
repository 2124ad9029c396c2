"""hardware_fault: a device reports errors that no program makes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costlens.diagnose.finding import Place, Rule, Severity, Verdict
from costlens.diagnose.wording import danger

if TYPE_CHECKING:
    from costlens.core.device_records import GpuPart
    from costlens.diagnose.evidence import Evidence

__all__ = ["RULE"]

_NAME = "hardware_fault"

# Error codes of NVIDIA's driver that mean the board, its memory, its links or its firmware, by
# NVIDIA's "XID Errors" (r570): 13, 31, 43 and 45 are what programs do, and are left out.
_HARDWARE_XIDS = frozenset({48, 61, 62, 63, 64, 69, 74, 79, 92, 94, 95, 119, 120, 140, 143, 154})

_COUNTS = {
    "uncorrected": "uncorrectable memory errors",
    "row_remap_failure": "memory rows that could not be remapped",
    "row_remap_uncorrected": "memory rows remapped after uncorrectable errors",
}

# Packets that links had to send again are ordinary by ones and twos.
_LINK_COUNTS = {"nvlink_crc": "NVLink packets with bad checksums", "pcie_replay": "PCIe replays"}
_MAX_LINK_ERRORS_PER_S = 1.0


def _judge(evidence: Evidence) -> Verdict:
    """Find devices that count uncorrectable errors, that the driver lost, or whose links fail.

    It saves nothing by itself: it says which hardware the next failure will come from.
    """
    faulty = [(pair[0], lines) for pair in evidence.gpus if (lines := _describe(pair))]
    if not faulty:
        return None
    host = evidence.now.rank.host_name
    return danger(
        _NAME,
        Severity.CRITICAL,
        [f"on {host}: {line}" for _, lines in faulty for line in lines],
        [
            (
                f"Leave {host} out of the next allocation (sbatch --exclude={host}, or a taint: see"
                " integrations/exclude-list) and have the device tested"
            ),
            "Save now, and resume on other hardware",
            "nvidia-smi --gpu-reset, once nothing runs on it, brings remapped rows into use",
        ],
        [Place(host, part.uuid, part.pci_id) for part, _ in faulty],
    )


def _describe(pair: tuple[GpuPart, GpuPart | None]) -> list[str]:
    part, before = pair
    earlier = {} if before is None else before.errors
    num_losses = 0 if before is None else before.num_losses
    is_calm = not part.is_lost and not part.is_remap_pending and part.num_losses == num_losses
    if is_calm and part.errors == earlier:
        return []  # as nearly always
    name = f"GPU {part.uuid}" + (f" at {part.pci_id}" if part.pci_id else "")
    risen = {kind: count - earlier.get(kind, 0) for kind, count in part.errors.items()}
    lines = [
        f"{name} has {risen[kind]} {text}" for kind, text in _COUNTS.items() if risen.get(kind)
    ]
    if part.is_lost or part.num_losses > num_losses:
        lines.append(f"the driver has lost {name}")
    if part.is_remap_pending:
        lines.append(f"{name} has memory rows that wait for a reset to be remapped")
    if risen.get("xid") and part.last_xid in _HARDWARE_XIDS:
        lines.append(f"the driver reports XID {part.last_xid} for {name}")
    sampled_s = part.sampled_s - (0.0 if before is None else before.sampled_s)
    for kind, text in _LINK_COUNTS.items():
        if sampled_s > 0 and risen.get(kind, 0) / sampled_s > _MAX_LINK_ERRORS_PER_S:
            lines.append(f"{name} has {risen[kind]} {text}")
    return lines


RULE = Rule(_NAME, _judge, needs_steps=False)
