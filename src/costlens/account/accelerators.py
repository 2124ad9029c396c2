"""Product names of accelerators, taken apart so that a driver's name meets that of a price list.

``NVIDIA H100 80GB HBM3``, ``H100-SXM`` and ``h100_80gb`` are one product; ``H100 PCIe`` is another.
Pure; prices, peaks and MIG slices are all looked up through it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Accelerator", "parse_accelerator"]

_NOISE = frozenset(
    {
        *("NVIDIA", "TESLA", "GEFORCE", "QUADRO", "AMD", "INSTINCT", "GPU", "GRAPHICS", "OAM"),
        *("GENERATION", "BLACKWELL", "SERVER", "WORKSTATION", "EDITION", "TENSOR", "CORE"),
    }
)
_MEMORY = re.compile(r"([0-9]{1,4})(GB|GIB)")
_FORM = re.compile(r"(SXM|PCIE|NVL)[0-9]?")
_STACKED = re.compile(r"HBM[0-9]E?")
# RTX A6000 and A6000 are the same card; RTX 6000 and RTX 6000 Ada are not.
_RTX_A = re.compile(r"RTX(A[0-9]{4})")
_MIG = re.compile(r"\bMIG\b.*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Accelerator:
    """A product, with what tells its variants apart.

    Args:
        model: Letters and digits, such as ``H100`` or ``RTX4090``.
        memory_gb: Gigabytes of memory, where the name says so.
        form: SXM, PCIE or NVL, where the name says so.
    """

    model: str
    memory_gb: int | None = None
    form: str | None = None

    def match(self, listed: Accelerator) -> int | None:
        """Return how many variants' marks agree with a listed product, or None for another one.

        A mark that either side leaves out neither agrees nor differs.
        """
        if self.model != listed.model:
            return None
        pairs = ((self.memory_gb, listed.memory_gb), (self.form, listed.form))
        both = [pair for pair in pairs if None not in pair]
        return len(both) if all(own == other for own, other in both) else None


def parse_accelerator(name: str) -> Accelerator:
    """Return the product that a name means; a MIG device counts as the GPU it is a slice of.

    Args:
        name: As a driver or a price list writes it.
    """
    words = re.split(r"[\s\-_/(),]+", _MIG.sub("", name).upper())
    memory_gb = form = None
    model: list[str] = []
    is_stacked = False
    for word in words:
        if found := _MEMORY.fullmatch(word):
            memory_gb = int(found[1])
        elif found := _FORM.fullmatch(word):
            form = found[1]
        elif _STACKED.fullmatch(word):
            is_stacked = True
        elif word and word not in _NOISE:
            model.append(word)
    joined = "".join(model)
    if is_rtx := _RTX_A.fullmatch(joined):
        joined = is_rtx[1]
    # Its cards for PCIe say so; only the module's name ends in the kind of memory.
    if joined == "H100" and form is None and is_stacked:
        form = "SXM"
    return Accelerator(joined, memory_gb, form)
