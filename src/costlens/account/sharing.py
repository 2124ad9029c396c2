"""Which share of its devices each rank pays for, once the records of all ranks are there.

A rank cannot know who else of the job drives its device; the devices' UUIDs in the records tell.
Ranks that share a device share its price, and what no rank of a node drives is counted by what the
ranks of the node name.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from decimal import Context, Decimal
from typing import Protocol

from costlens.account.hardware import mig_share
from costlens.account.money import add
from costlens.core.records import RankRecord

__all__ = ["own_share", "share_devices"]

_SHARES = Context(prec=28)


class Slice(Protocol):
    """What a device says of its size; ``GpuPart`` and ``DeviceIdentity`` both do."""

    @property
    def name(self) -> str | None:
        """Return its product name."""

    @property
    def parent_uuid(self) -> str | None:
        """Return the GPU that it is a slice of, None for a whole one."""

    @property
    def mig_slices(self) -> int | None:
        """Return its compute slices."""


def own_share(devices: Iterable[Slice]) -> str | None:
    """Return how many GPUs a rank's devices are where MIG slices are among them, else None.

    Args:
        devices: All devices that the rank drives.
    """
    found = list(devices)
    sizes = [size for device in found if (size := _size(device)) is not None]
    if len(sizes) < len(found) or all(device.parent_uuid is None for device in found):
        return None
    return f"{_SHARES.create_decimal(add(sizes)):f}"


def share_devices(records: Sequence[RankRecord]) -> list[RankRecord]:
    """Return the records with the shares that their ranks pay for, in the same order.

    A record that does not name all its devices is left as it is.

    Args:
        records: One record per attempt and rank.
    """
    holders = Counter(
        (record.attempt.number, uuid)
        for record in records
        for uuid in {gpu.uuid for gpu in record.gpus}
    )
    if not holders:
        return list(records)
    nodes: defaultdict[tuple[int, str], list[RankRecord]] = defaultdict(list)
    for record in records:
        nodes[record.attempt.number, record.rank.host_name].append(record)
    return [
        _settle(record, holders, nodes[record.attempt.number, record.rank.host_name])
        for record in records
    ]


def _settle(
    record: RankRecord, holders: Counter[tuple[int, str]], node: Sequence[RankRecord]
) -> RankRecord:
    if not _names_all(record):
        return record
    facts: dict[str, object] = {}
    unowned = _count_unowned(record, node)
    if unowned is not None:
        facts["unowned_gpus"] = unowned
    if any(holders[record.attempt.number, gpu.uuid] > 1 for gpu in record.gpus):
        share = _shared(record, holders)
        if share is not None:
            facts["gpu_share"] = share
    if not facts:
        return record
    changes: dict[str, object] = {"rank": record.rank.model_copy(update=facts)}
    if record.price is not None and record.price.unit == "gpu" and "gpu_share" in facts:
        share_of_price = {"share": facts["gpu_share"]}
        changes["price"] = record.price.model_copy(update=share_of_price)
    return record.model_copy(update=changes)


def _shared(record: RankRecord, holders: Counter[tuple[int, str]]) -> str | None:
    total = Decimal(0)
    for gpu in record.gpus:
        size = _size(gpu)
        if size is None:
            return None
        num_ranks = holders[record.attempt.number, gpu.uuid]
        total = _SHARES.add(total, _SHARES.divide(size, Decimal(num_ranks)))
    return f"{total:f}"


def _count_unowned(record: RankRecord, node: Sequence[RankRecord]) -> int | None:
    """Return the allocated devices of a node that none of its ranks names; None if unknown."""
    allocated = None if record.job is None else record.job.num_gpus
    is_whole = len(node) == record.rank.local_world_size and all(map(_names_all, node))
    if allocated is None or record.rank.local_rank != 0 or not is_whole:
        return None
    driven = {gpu.parent_uuid or gpu.uuid for one in node for gpu in one.gpus}
    return max(0, allocated - len(driven))


def _names_all(record: RankRecord) -> bool:
    return 0 < record.rank.num_gpus == len(record.gpus)


def _size(gpu: Slice) -> Decimal | None:
    if gpu.parent_uuid is None:
        return Decimal(1)
    share = mig_share(gpu.name or "", gpu.mig_slices or 0)
    return None if share is None else Decimal(share)
