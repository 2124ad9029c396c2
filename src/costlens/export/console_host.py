"""The part of the console report on the hosts: CPU, memory, loader workers, reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.text import Text

from costlens.account.gpus import sum_known
from costlens.core.host_records import HostSummary
from costlens.core.run_record import RunRecord
from costlens.export.console_layout import Renderable, Row, join, lay_out, plural
from costlens.export.figures import show_bytes, show_count, show_duration, show_rate, show_share

__all__ = ["describe_host"]

_MANY_THROTTLED = 0.05
_LITTLE_LEFT = 0.1


def describe_host(record: RunRecord) -> Iterable[Renderable]:
    """Yield what the run took of its hosts, and what they held back."""
    hosts = record.host
    if not hosts:
        return
    rows: list[Row] = [("CPUs", _cpu(hosts)), ("memory", _memory(hosts)), ("reads", _reads(hosts))]
    yield lay_out((label, value) for label, value in rows if value)
    for host in hosts:
        yield from (Text(line, "yellow") for line in _warnings(host, is_named=len(hosts) > 1))


def _cpu(hosts: Sequence[HostSummary]) -> str:
    process = sum_known(host.process_cpus for host in hosts)
    loader = sum_known(host.loader_cpus for host in hosts)
    alive = sum(host.loader.num_alive for host in hosts if host.loader is not None)
    num_cpus = sum_known(host.node.num_cpus for host in hosts if host.node is not None)
    limit = sum_known(host.container.cpu_limit for host in hosts if host.container is not None)
    usable = limit if limit is not None else num_cpus
    by_loader = None if loader is None else f"{show_rate(loader)} by loader workers"
    return join(
        None if process is None else f"{show_rate(process)} kept busy by the training",
        None if by_loader is None else f"{by_loader} ({show_count(alive)} alive)",
        None if usable is None or process is None else f"of {show_rate(usable)}",
    )


def _memory(hosts: Sequence[HostSummary]) -> str:
    process = sum_known(host.process_memory_bytes for host in hosts)
    loader = sum_known(host.loader.memory_bytes for host in hosts if host.loader is not None)
    left = [left for host in hosts if (left := _left(host)) is not None]
    return join(
        None if process is None else f"{show_bytes(process)} by the training",
        None if not loader else f"{show_bytes(loader)} by loader workers",
        f"{show_bytes(min(left))} left" + (" on the fullest host" if len(left) > 1 else "")
        if left
        else None,
    )


def _left(host: HostSummary) -> int | None:
    node = None if host.node is None else host.node.memory_available_bytes
    limit = None if host.container is None else host.container.memory_available_bytes
    return min((left for left in (node, limit) if left is not None), default=None)


def _reads(hosts: Sequence[HostSummary]) -> str:
    parts = [host.reads for host in hosts if host.reads is not None]
    num_reads = sum(part.num_reads for part in parts)
    if not num_reads:
        return ""
    mean_s = sum(part.read_s for part in parts) / num_reads
    rate = sum_known(part.bytes_per_s for part in parts)
    return join(
        f"{show_bytes(sum(part.num_bytes for part in parts))} in {plural(num_reads, 'read')}",
        f"mean {show_duration(mean_s)}",
        f"longest {show_duration(max(part.max_s for part in parts))}",
        f"{show_bytes(rate)}/s" if rate else None,
    )


def _warnings(host: HostSummary, *, is_named: bool) -> Iterable[str]:
    on = f"{host.host_name}: " if is_named else ""
    loader, reads, container = host.loader, host.reads, host.container
    if loader is not None and loader.num_died:
        yield f"{on}{plural(loader.num_died, 'loader worker')} died"
    if reads is not None and reads.num_errors:
        yield f"{on}{plural(reads.num_errors, 'read')} failed"
    if container is None:
        return
    periods, throttled = container.num_periods, container.num_throttled
    if periods and throttled and throttled / periods > _MANY_THROTTLED:
        limit = "" if container.cpu_limit is None else f" of {show_rate(container.cpu_limit)} CPUs"
        yield f"{on}the limit{limit} stopped it in {show_share(throttled / periods)} of its periods"
    limit_bytes, left = container.memory_limit_bytes, container.memory_available_bytes
    if limit_bytes and left is not None and left < limit_bytes * _LITTLE_LEFT:
        total = show_bytes(limit_bytes)
        yield f"{on}{show_bytes(left)} of {total} memory is left until it is killed"
