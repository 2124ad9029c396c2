"""Which devices a process may use: the rules of CUDA_VISIBLE_DEVICES, applied to what is there.

Pure; ``nvml_devices.py`` lists what is there, ``placement/visible.py`` reads the variables. The
rules are those of the CUDA programming guide, and in doubt those of torch's own reading of them.
A device is named by its UUID here, for CUDA's order is not that of NVML.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Candidate", "Selection", "TorchDevice", "choose_own", "match_torch", "select_visible"]

_INTEGER = re.compile(r"[+-]?[0-9]+")
_LEGACY_MIG = re.compile(r"MIG-(GPU-[^/]+)/([0-9]+)/([0-9]+)")
_MAX_SHOWN = 24


@dataclass(frozen=True, slots=True)
class Candidate:
    """A device that the driver knows.

    Args:
        uuid: Its UUID; that of the slice for a MIG device.
        pci_id: Domain, bus and device, such as ``00000000:17:00.0``; a slice has its GPU's.
        model: Its name.
        parent_uuid: The GPU of a MIG device.
        instance: GPU instance and compute instance of a MIG device.
    """

    uuid: str
    pci_id: str
    model: str = ""
    parent_uuid: str | None = None
    instance: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class TorchDevice:
    """A device as torch knows it once CUDA is initialised.

    Args:
        uuid: Its UUID without a prefix; None where this torch does not tell.
        pci_id: Domain, bus and device; None where this torch does not tell.
    """

    uuid: str | None
    pci_id: str | None


@dataclass(frozen=True, slots=True)
class Selection:
    """The devices a process may use.

    Args:
        devices: In CUDA's order: the first is ``cuda:0``.
        problems: What is wrong with the variable; training goes on with the rest.
        order: How they were told apart: ``torch``, ``uuid``, ``pci``, or ``assumed``.
    """

    devices: tuple[Candidate, ...]
    problems: tuple[str, ...] = ()
    order: str = "pci"


def select_visible(
    visible: str | None, device_order: str | None, candidates: Sequence[Candidate]
) -> Selection:
    """Return the devices that CUDA shows to a process.

    Args:
        visible: CUDA_VISIBLE_DEVICES; None where it is not set.
        device_order: CUDA_DEVICE_ORDER; None where it is not set, which means FASTEST_FIRST.
        candidates: All devices of the node, MIG slices among them, in any order.
    """
    boards = sorted((c for c in candidates if c.instance is None), key=lambda c: c.pci_id)
    slices = sorted((c for c in candidates if c.instance), key=lambda c: (c.pci_id, c.instance))
    order = "pci" if _has_known_order(boards, device_order) else "assumed"
    if visible is None:
        found = [_first_slice(board, slices) for board in boards]
        return Selection(_limit_slices(found), (), order)
    entries = [entry.strip() for entry in visible.split(",")]
    if entries[0].startswith(("GPU-", "MIG-")):
        return _select_named(entries, boards, slices)
    return _select_numbered(entries, boards, slices, order)


def match_torch(devices: Sequence[TorchDevice], candidates: Sequence[Candidate]) -> Selection:
    """Return the candidates that torch's devices are, in torch's order.

    Args:
        devices: All devices that torch sees, ``cuda:0`` first.
        candidates: All devices of the node.
    """
    slices = sorted((c for c in candidates if c.instance), key=lambda c: (c.pci_id, c.instance))
    found, problems = [], []
    for ordinal, device in enumerate(devices):
        match = _find_torch(device, candidates)
        if match is None:
            problems.append(f"cuda:{ordinal} is no device that the driver lists")
        else:
            found.append(_first_slice(match, slices))
    return Selection(tuple(found), tuple(problems), "torch")


def choose_own(
    devices: Sequence[Candidate],
    ordinals: Sequence[int] | None,
    local_rank: int,
    local_world_size: int,
) -> tuple[Candidate, ...]:
    """Return those of the visible devices that this rank drives itself.

    Where it has not said so, one of several ranks of a node has the device of its local rank, as
    launchers have it, and a rank that is alone may use all.

    Args:
        devices: The visible devices, ``cuda:0`` first.
        ordinals: Torch's numbers of the devices that the rank drives; None while unknown.
        local_rank: Rank on its node, from 0.
        local_world_size: Ranks on this node.
    """
    if not devices:
        return ()
    if ordinals:
        return tuple(devices[ordinal] for ordinal in ordinals if ordinal < len(devices))
    if local_world_size <= 1 or len(devices) == 1:
        return tuple(devices)
    return (devices[local_rank % len(devices)],)


def _find_torch(device: TorchDevice, candidates: Sequence[Candidate]) -> Candidate | None:
    for candidate in candidates:
        _, _, bare = candidate.uuid.partition("-")
        if device.uuid is not None and device.uuid.lower() == bare.lower():
            return candidate
    # A slice has the PCI id of its board, which comes first.
    boards = [c for c in candidates if c.instance is None and c.pci_id == device.pci_id]
    return boards[0] if device.pci_id is not None and boards else None


def _has_known_order(boards: Sequence[Candidate], device_order: str | None) -> bool:
    # FASTEST_FIRST leaves boards of one model in PCI order; between models it is CUDA's secret.
    return device_order == "PCI_BUS_ID" or len({board.model for board in boards}) <= 1


def _first_slice(board: Candidate, slices: Sequence[Candidate]) -> Candidate:
    """Return what CUDA uses of a board: its first slice where it is cut into slices."""
    return next((cut for cut in slices if cut.parent_uuid == board.uuid), board)


def _limit_slices(found: Sequence[Candidate]) -> tuple[Candidate, ...]:
    # A process sees one slice at most, and boards beside it only where none is cut.
    cut = next((device for device in found if device.instance), None)
    return tuple(found) if cut is None else (cut,)


def _select_named(
    entries: Sequence[str], boards: Sequence[Candidate], slices: Sequence[Candidate]
) -> Selection:
    prefix = entries[0][:4]
    found: list[Candidate] = []
    problems: list[str] = []
    for entry in entries:
        matches = _match_name(entry, prefix, boards, slices)
        if len(matches) != 1:
            problems.append(_describe(entry, "names several devices" if matches else None))
            break
        if matches[0] in found:
            return Selection(
                (), (_describe(entry, "is there twice: no device is visible"),), "uuid"
            )
        found.append(matches[0])
    chosen = [_first_slice(device, slices) for device in found]
    return Selection(_limit_slices(chosen), tuple(problems), "uuid")


def _match_name(
    entry: str, prefix: str, boards: Sequence[Candidate], slices: Sequence[Candidate]
) -> list[Candidate]:
    if not entry.startswith(prefix):
        return []
    legacy = _LEGACY_MIG.fullmatch(entry)
    if legacy is not None:
        parent, instance = legacy[1], (int(legacy[2]), int(legacy[3]))
        return [c for c in slices if c.parent_uuid == parent and c.instance == instance]
    return [c for c in (*boards, *slices) if c.uuid.startswith(entry)]


def _select_numbered(
    entries: Sequence[str], boards: Sequence[Candidate], slices: Sequence[Candidate], order: str
) -> Selection:
    if entries[0] in {"", "NoDevFiles"}:
        return Selection((), (), order)
    found: list[Candidate] = []
    problems: list[str] = []
    for entry in entries:
        # CUDA reads as far as there are digits, as strtol does: "1gpu" is 1.
        digits = _INTEGER.match(entry)
        number = -1 if digits is None else int(digits[0])
        if not 0 <= number < len(boards):
            if number != -1 or digits is None:  # -1 is how one says that the list ends here
                problems.append(_describe(entry))
            break
        if boards[number] in found:
            return Selection((), (_describe(entry, "is there twice: no device is visible"),), order)
        found.append(boards[number])
    chosen = [_first_slice(board, slices) for board in found]
    return Selection(_limit_slices(chosen), tuple(problems), order)


def _describe(entry: str, what: str | None = None) -> str:
    what = what or "is no device of this node: it ends the list"
    return f"CUDA_VISIBLE_DEVICES: {entry[:_MAX_SHOWN]!r} {what}"
