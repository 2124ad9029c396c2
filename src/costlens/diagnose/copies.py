"""For how long a device stands still for copies of batches that no kernel can run beside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costlens.diagnose.measures import received_bytes

if TYPE_CHECKING:
    from costlens.diagnose.evidence import Evidence

__all__ = ["copied_s"]

# What PCIe carries from pageable memory at most, through a buffer of the driver's.
_PAGEABLE_BYTES_PER_S = 6e9


def copied_s(evidence: Evidence) -> float:
    """Return for how long the device waited for copies from pageable memory; 0 where unknown.

    No kernel runs beside such a copy, so that nothing else explains this time.
    """
    loading = evidence.now.loading
    if loading is None or loading.pin_memory is not False:
        return 0.0
    return min(evidence.host_s["transfer"], received_bytes(evidence) / _PAGEABLE_BYTES_PER_S)
