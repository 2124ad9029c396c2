"""What accelerators can do at most, from a dated table with sources: peak FLOP/s and MIG slices.

Pure but for the table, a file of the package that ``load_hardware`` reads once. What the table does
not have is unknown: a peak is never taken from a similar product.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import lru_cache
from pathlib import Path

from costlens.account.accelerators import Accelerator, parse_accelerator

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["PRECISIONS", "Hardware", "Peak", "find_peak", "load_hardware", "mig_share"]

PRECISIONS = ("bf16", "fp16", "tf32", "fp32", "fp8")
"""Precisions that a peak may be known at; the first two are what is trained in by default."""

_TABLE = Path(__file__).parent / "data" / "hardware.toml"
_SHARES = Context(prec=28)


@dataclass(frozen=True, slots=True)
class Hardware:
    """One product of the table.

    Args:
        product: Which one.
        peaks: Dense FLOP/s by precision.
        mig_slices: Compute slices that MIG cuts it into; None where it has no MIG.
        since: Year of the source.
        source: Who states it.
    """

    product: Accelerator
    peaks: dict[str, float]
    mig_slices: int | None
    since: int
    source: str


@dataclass(frozen=True, slots=True)
class Peak:
    """The most that one device can do.

    Args:
        flops_per_s: Dense FLOP/s, > 0.
        precision: Of the numbers that are multiplied.
        since: Year of the source.
        source: Who states it.
    """

    flops_per_s: float
    precision: str
    since: int
    source: str


@lru_cache(maxsize=1)
def load_hardware() -> tuple[Hardware, ...]:
    """Return the table; reads a small file the first time."""
    document = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    return tuple(
        Hardware(
            product=parse_accelerator(entry["name"]),
            peaks={name: float(entry[name]) for name in PRECISIONS if name in entry},
            mig_slices=entry.get("mig_slices"),
            since=entry["since"],
            source=entry["source"],
        )
        for entry in document["accelerator"]
    )


def find_peak(name: str, precision: str | None = None) -> Peak | str:
    """Return the peak of a device, or why it is not known.

    Args:
        name: Product name, as the driver tells it.
        precision: One of ``PRECISIONS``; by default the first that the device has.
    """
    found = _find(name)
    if not found:
        return f"the peak of {name!r} is not known"
    offered = [item for item in PRECISIONS if all(item in entry.peaks for entry in found)]
    wanted = precision or next(iter(offered), None)
    if wanted not in offered:
        return f"the {wanted} peak of {name!r} is not known"
    if len({entry.peaks[wanted] for entry in found}) > 1:
        return f"{name!r} does not say which variant it is, and their peaks differ"
    return Peak(found[0].peaks[wanted], wanted, found[0].since, found[0].source)


def mig_share(name: str, slices: int) -> str | None:
    """Return the share of a GPU that MIG slices are, as a decimal string; None if unknown.

    Args:
        name: Product name of the GPU or of the MIG device.
        slices: Compute slices of the MIG device, > 0, such as 1 of a ``1g.10gb``.
    """
    totals = {entry.mig_slices for entry in _find(name)}
    total = totals.pop() if len(totals) == 1 else None
    if total is None or not 0 < slices <= total:
        return None
    return f"{_SHARES.divide(Decimal(slices), Decimal(total)):f}"


def _find(name: str) -> list[Hardware]:
    device = parse_accelerator(name)
    scored = [(device.match(entry.product), entry) for entry in load_hardware()]
    best = max((score for score, _ in scored if score is not None), default=None)
    return [entry for score, entry in scored if score is not None and score == best]
