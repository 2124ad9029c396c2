"""What torch knows of its CUDA devices, asked only where CUDA is initialised already.

Never initialises CUDA, which would cost memory on the device and break a later fork.
"""

from __future__ import annotations

import sys
from typing import Any

from costlens.observe.visible_devices import TorchDevice

__all__ = ["ask_torch"]


def ask_torch() -> tuple[TorchDevice, ...] | None:
    """Return torch's devices, ``cuda:0`` first, or None while CUDA is not initialised; any thread.

    torch is not imported for it; asking takes no work on any device.
    """
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
    is_initialized = getattr(cuda, "is_initialized", None)
    if is_initialized is None or not is_initialized():
        return None
    return tuple(_describe(cuda.get_device_properties(i)) for i in range(cuda.device_count()))


def _describe(properties: Any) -> TorchDevice:  # noqa: ANN401 - torch's, with fields by version
    uuid = getattr(properties, "uuid", None)
    numbers = [getattr(properties, f"pci_{name}_id", None) for name in ("domain", "bus", "device")]
    domain, bus, device = numbers
    if domain is None or bus is None or device is None:
        pci_id = None
    else:
        pci_id = f"{domain:08X}:{bus:02X}:{device:02X}.0"
    return TorchDevice(uuid=None if uuid is None else str(uuid), pci_id=pci_id)
