"""Hosts of a run: sums over their ranks, and each machine once."""

from __future__ import annotations

from itertools import permutations

from costlens.account.hosts import merge_hosts
from costlens.account.ledger import merge
from costlens.core.host_records import HostPart, LoaderPart, NodePart, ProcessPart, ReadsPart
from costlens.core.records import RankRecord
from tests.unit.account.build import make_record


def _record(host_name: str, host: HostPart, rank: int = 0, attempt: int = 1) -> RankRecord:
    record = make_record(attempt, rank, host=host)
    return record.model_copy(
        update={"rank": record.rank.model_copy(update={"host_name": host_name})}
    )


def _host(node: str | None = None, **more: object) -> HostPart:
    part = NodePart(id=node, num_cpus=8) if node else None
    return HostPart.model_validate({"sampled_s": 10.0, "node": part, **more})


def test_a_hosts_ranks_are_summed_and_its_machine_is_there_once() -> None:
    """Local rank 0 speaks for the machine; processes, workers and reads are added up."""
    reads = ReadsPart(num_reads=2, num_bytes=100, bounds_s=[1.0], buckets=[2, 0], max_s=0.5)
    records = [
        _record(
            "a",
            rank=rank,
            host=_host(
                None if rank else "m",
                process=ProcessPart(memory_bytes=10),
                loader=LoaderPart(num_alive=2, cpu_s=5.0 * (rank + 1)),
                reads=reads.model_copy(update={"max_s": 0.5 + rank}),
            ),
        )
        for rank in range(3)
    ]
    (host,) = merge_hosts(records)
    assert (host.host_name, host.num_ranks, host.process_memory_bytes) == ("a", 3, 30)
    assert host.loader is not None
    assert (host.loader.num_alive, host.loader.cpu_s, host.loader_cpus) == (6, 30.0, 3.0)
    assert host.reads is not None
    assert (host.reads.num_bytes, host.reads.buckets, host.reads.max_s) == (300, [6, 0], 2.5)
    assert host.node is not None
    assert host.node.num_cpus == 8


def test_containers_on_one_machine_share_it() -> None:
    """Pods have host names of their own; the machine's CPUs are there once."""
    pods = [
        _record(f"pod-{rank}", _host(machine), rank)
        for rank, machine in enumerate(("m", "m", "other"))
    ]
    nodes = {host.host_name: host.node for host in merge_hosts(pods)}
    assert [name for name, node in nodes.items() if node is not None] == ["pod-0", "pod-2"]


def test_the_newest_attempt_on_a_host_counts_in_any_order_of_records() -> None:
    """An earlier attempt's sums are not added to those of the next; a host left behind stays."""
    records = [
        _record("a", _host("a"), 0, 1),
        _record("b", _host("b"), 1, 1),
        _record("a", _host("a"), 0, 2),
    ]
    merged = [merge(order, now=0.0).host for order in permutations(records)]
    assert all(hosts == merged[0] for hosts in merged)
    assert [(h.host_name, h.attempt, h.num_ranks) for h in merged[0]] == [("a", 2, 1), ("b", 1, 1)]


def test_buckets_of_different_bounds_are_not_added() -> None:
    """Two versions of costlens may count differently: the sums remain, the histogram does not."""
    records = [
        make_record(
            rank=rank,
            host=_host(reads=ReadsPart(num_reads=1, bounds_s=[bound], buckets=[1, 0])),
        )
        for rank, bound in enumerate((1.0, 2.0))
    ]
    (host,) = merge_hosts(records)
    assert host.reads is not None
    assert (host.reads.num_reads, host.reads.buckets) == (2, [])


def test_records_of_older_versions_have_no_host() -> None:
    """What was not sampled is absent, not zero."""
    assert merge_hosts([make_record()]) == []
