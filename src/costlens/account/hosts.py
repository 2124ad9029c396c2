"""The hosts of a run: what their ranks used, summed, and each machine once. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from costlens.account.gpus import sum_known
from costlens.core.clock import NS_PER_S
from costlens.core.host_records import HostPart, HostSummary, LoaderPart, NodePart, ReadsPart
from costlens.core.records import RankRecord

__all__ = ["merge_hosts"]


def merge_hosts(records: Sequence[RankRecord]) -> list[HostSummary]:
    """Return the hosts of a run by name, each as the newest attempt on it saw it.

    Containers on one machine have names of their own, but the machine is described once.

    Args:
        records: One record per attempt and rank, attempts in order.
    """
    by_name: dict[str, list[RankRecord]] = {}
    for record in records:
        if record.host is not None:
            group = by_name.setdefault(record.rank.host_name, [])
            if group and group[0].attempt.number != record.attempt.number:
                group.clear()
            group.append(record)
    machines: set[str] = set()
    return [_summarize(name, by_name[name], machines) for name in sorted(by_name)]


def _summarize(name: str, records: Sequence[RankRecord], machines: set[str]) -> HostSummary:
    parts = [record.host for record in records if record.host is not None]
    node = next((part.node for part in parts if part.node is not None), None)
    return HostSummary(
        host_name=name,
        attempt=records[0].attempt.number,
        num_ranks=len(records),
        process_cpus=sum_known(map(_process_cpus, records)),
        process_memory_bytes=_sum_counts(
            part.process.memory_bytes for part in parts if part.process is not None
        ),
        loader_cpus=sum_known(map(_loader_cpus, records)),
        loader=_sum_loaders([part.loader for part in parts if part.loader is not None]),
        reads=_sum_reads([part.reads for part in parts if part.reads is not None]),
        node=_once(node, machines),
        container=next((part.container for part in parts if part.container is not None), None),
    )


def _once(node: NodePart | None, machines: set[str]) -> NodePart | None:
    if node is None or node.id is None:
        return node
    if node.id in machines:
        return None
    machines.add(node.id)
    return node


def _process_cpus(record: RankRecord) -> float | None:
    process = None if record.host is None else record.host.process
    if process is None or process.cpu_user_s is None or process.cpu_system_s is None:
        return None
    # The process's own clock counts from its start, as its paid time does; where that begins later,
    # as in a notebook, a mean over it would say too much.
    if record.attempt.paid_from != "process_start" or record.total_ns <= 0:
        return None
    return (process.cpu_user_s + process.cpu_system_s) * NS_PER_S / record.total_ns


def _loader_cpus(record: RankRecord) -> float | None:
    host: HostPart | None = record.host
    if host is None or host.loader is None or host.sampled_s <= 0:
        return None
    return host.loader.cpu_s / host.sampled_s


def _sum_loaders(parts: Sequence[LoaderPart]) -> LoaderPart | None:
    if not parts:
        return None
    return LoaderPart(
        num_alive=sum(part.num_alive for part in parts),
        num_died=sum(part.num_died for part in parts),
        cpu_s=sum(part.cpu_s for part in parts),
        cpus_busy=sum_known(part.cpus_busy for part in parts),
        memory_bytes=_sum_counts(part.memory_bytes for part in parts),
    )


def _sum_reads(parts: Sequence[ReadsPart]) -> ReadsPart | None:
    if not parts:
        return None
    bounds_s = parts[0].bounds_s
    alike = [part.buckets for part in parts if part.bounds_s == bounds_s]
    return ReadsPart(
        num_reads=sum(part.num_reads for part in parts),
        num_bytes=sum(part.num_bytes for part in parts),
        num_errors=sum(part.num_errors for part in parts),
        num_opens=sum(part.num_opens for part in parts),
        open_s=sum(part.open_s for part in parts),
        read_s=sum(part.read_s for part in parts),
        max_s=max(part.max_s for part in parts),
        # Of two versions' buckets no sum can be made.
        bounds_s=bounds_s if len(alike) == len(parts) else [],
        buckets=[sum(column) for column in zip(*alike, strict=False)]
        if len(alike) == len(parts)
        else [],
        bytes_per_s=sum_known(part.bytes_per_s for part in parts),
        num_uncounted=sum(part.num_uncounted for part in parts),
    )


def _sum_counts(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
