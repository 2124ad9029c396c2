"""Bytes over the ports of InfiniBand and RoCE, which no counter of the network's devices holds.

Files of ``/sys/class/infiniband`` as the kernel documents them (stable/sysfs-class-infiniband):
data counters are in words of four bytes, and old ones stop at 32 bits instead of wrapping. Adapters
without them, such as Amazon's EFA, count bytes among their hardware counters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from costlens.observe.kernel_files import read_kernel_file

__all__ = ["InfinibandReading", "find_ports", "read_ports"]

_ROOT = Path("/")
_WORD_BYTES = 4
_STUCK = 2**32 - 1
_MAX_PORTS = 64
# In this order, with the bytes of their unit. The 64-bit counters of old kernels stand beside;
# those of new ones are 64 bits themselves.
_FILES = {
    "receive": {
        "counters_ext/port_rcv_data_64": _WORD_BYTES,
        "counters/port_rcv_data": _WORD_BYTES,
        "hw_counters/rx_bytes": 1,
    },
    "transmit": {
        "counters_ext/port_xmit_data_64": _WORD_BYTES,
        "counters/port_xmit_data": _WORD_BYTES,
        "hw_counters/tx_bytes": 1,
    },
}


@dataclass(frozen=True, slots=True)
class InfinibandReading:
    """Bytes by port, as the counters show them.

    Args:
        receive: By device and port.
        transmit: By device and port.
        unknown: Why a port is left out, where one is.
    """

    receive: dict[str, int] = field(default_factory=dict)
    transmit: dict[str, int] = field(default_factory=dict)
    unknown: str | None = None


def find_ports(root: Path = _ROOT) -> list[Path]:
    """Return the folders of the ports, none on a machine without; at most 64.

    Args:
        root: Where ``sys`` is looked for.
    """
    return sorted((root / "sys/class/infiniband").glob("*/ports/*"))[:_MAX_PORTS]


def read_ports(ports: list[Path]) -> InfinibandReading:
    """Return what the counters of the ports show; about 30 µs a port.

    Args:
        ports: As ``find_ports`` returned them; one that has vanished reads as nothing.
    """
    seen: dict[str, dict[str, int]] = {direction: {} for direction in _FILES}
    unknown = None
    for port in ports:
        name = f"{port.parent.parent.name}/{port.name}"
        for direction, files in _FILES.items():
            count, unit_bytes = next(_read(port, files), (None, 0))
            if count is None:
                unknown = f"{name}: its counters cannot be read"
            elif count == _STUCK and unit_bytes == _WORD_BYTES:
                unknown = f"{name}: its 32-bit counter has reached its end"
            else:
                seen[direction][name] = count * unit_bytes
    return InfinibandReading(**seen, unknown=unknown)


def _read(port: Path, files: Mapping[str, int]) -> Iterator[tuple[int, int]]:
    for file, unit_bytes in files.items():
        text = (read_kernel_file(f"{port}/{file}") or "").strip()
        if text.isdigit():
            yield int(text), unit_bytes
