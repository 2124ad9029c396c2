"""For how long devices were held down by what can be mended."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from costlens.core.device_records import GpuPart
    from costlens.diagnose.evidence import Evidence

__all__ = ["MIN_TIME_SHARE", "REASONS", "find_held", "held_share"]

REASONS = {
    "thermal_sw": "its own limit of temperature",
    "thermal_hw": "the hardware's limit of temperature",
    "hw_brake": "the power supply's brake",
}
"""Reasons that a machine is broken or badly cooled for. A power cap is none of them: large boards
run at it whenever they are fully used."""

MIN_TIME_SHARE = 0.1
"""Least share of the time: what is shorter is a moment of a hot day."""


def find_held(pair: tuple[GpuPart, GpuPart | None]) -> tuple[float, str] | None:
    """Return for which share of the time a device was held down, and why; None where little.

    Args:
        pair: The device, now and before.
    """
    now, before = pair
    sampled_s = now.sampled_s - (0.0 if before is None else before.sampled_s)
    if now.throttle_s is None or sampled_s <= 0:
        return None
    earlier = (None if before is None else before.throttle_s) or {}
    held = {name: now.throttle_s.get(name, 0.0) - earlier.get(name, 0.0) for name in REASONS}
    reason = max(held, key=lambda name: held[name])
    share = min(1.0, held[reason] / sampled_s)
    return (share, reason) if share >= MIN_TIME_SHARE else None


def held_share(evidence: Evidence) -> float:
    """Return for which share of the time a rank's worst device was held down; 0 where little."""
    return max((held[0] for pair in evidence.gpus if (held := find_held(pair))), default=0.0)
