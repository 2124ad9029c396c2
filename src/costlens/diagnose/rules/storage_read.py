"""storage_read: batches come late because reading them takes most of what a batch takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costlens.diagnose.finding import Abstention, Remedy, Rule, Verdict
from costlens.diagnose.measures import percent, rise
from costlens.diagnose.wording import loss, milliseconds

if TYPE_CHECKING:
    from costlens.diagnose.data_supply import DataSupply
    from costlens.diagnose.evidence import Evidence

__all__ = ["RULE"]

_NAME = "storage_read"

# Below it a read's time is the way there and back, not its bytes: at 100 MB/s, a slow stream from
# an object store, so much takes 2.5 ms, an ordinary first byte 10 to 100 ms.
_SMALL_READ_BYTES = 256 * 1024


def _judge(evidence: Evidence) -> Verdict:
    """Find reads that are at least half of what a batch takes.

    Saved: what a batch takes less once reads cost nothing, as from a local copy.
    """
    supply = evidence.supply
    if supply is None:
        return None
    if supply.cause != _NAME:
        is_open = supply.read_s is None and supply.cause == "data_wait"
        missing = "counted reads: open files through run.filesystem(…)"
        return Abstention(_NAME, missing) if is_open else None
    num, read_s, workers = evidence.num_iterations, supply.read_s or 0.0, supply.num_workers or 0
    if workers and supply.load_s is not None:
        saved_s = supply.saved_s(workers, max(0.0, supply.load_s - read_s))
    else:
        saved_s = min(read_s, supply.wait_s)
    saved = evidence.share(saved_s * num)
    remedies = [
        Remedy("Copy the data to a local disk before the training, or cache what was read", saved),
        *_more_workers(evidence, supply),
    ]
    is_small, line = _describe_reads(evidence)
    remedies.append(
        Remedy("Pack samples into shards of 100 MB and more, and read them as streams")
        if is_small
        else Remedy("Compress the data, or use storage of more throughput")
    )
    text = [
        (
            f"each iteration of {milliseconds(supply.batch_s)} waits {milliseconds(supply.wait_s)} "
            f"({percent(supply.wait_s / supply.batch_s)}) for its batch"
        ),
        f"reads take {milliseconds(read_s)} of a batch, over all workers",
        *([] if line is None else [line]),
    ]
    return loss(_NAME, saved, text, remedies)


def _more_workers(evidence: Evidence, supply: DataSupply) -> list[Remedy]:
    workers = supply.enough_workers
    if workers <= (supply.num_workers or 0):
        return []
    saved = evidence.share(supply.saved_s(workers) * evidence.num_iterations)
    text = f"DataLoader(num_workers={workers}): reads wait beside one another"
    # Storage that has no more to give keeps them waiting: the copy comes first.
    return [Remedy(text + ", as far as the storage gives more at once", saved / 2)]


def _describe_reads(evidence: Evidence) -> tuple[bool, str | None]:
    num = rise(evidence, "host", "reads", "num_reads")
    num_bytes, read_s = (rise(evidence, "host", "reads", n) for n in ("num_bytes", "read_s"))
    if not num or num_bytes is None or not read_s:
        return False, None
    is_small = num_bytes / num < _SMALL_READ_BYTES
    kind = "latency" if is_small else "throughput"
    rate = f"{num_bytes / num / 1024:.0f} KiB in {milliseconds(read_s / num)}"
    return is_small, f"a read gets {rate}, {num_bytes / read_s / 1e6:.1f} MB/s: {kind} counts"


RULE = Rule(_NAME, _judge)
