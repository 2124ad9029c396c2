"""The host in metrics, spans and the console report."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from costlens.account.ledger import merge
from costlens.core.host_records import HostPart, LoaderPart, NodePart, ProcessPart, ReadsPart
from costlens.core.window import Histogram
from costlens.export import host_periods
from costlens.export.catalog import METRICS, read_points
from costlens.export.catalog_host import HOST_METRICS
from costlens.export.console import render
from costlens.export.host_periods import summarize_host
from costlens.export.host_readings import look_up
from tests.unit.account.build import make_record
from tests.unit.export.rehearsal import Rehearsal, busy_host, complete
from tests.unit.export.test_otel_traces import Tracing


def _values(name: str, run: Rehearsal) -> dict[str, Any]:
    metric = next(metric for metric in METRICS if metric.name == name)
    points = list(read_points(metric, run.look()))
    own = [{k: v for k, v in a.items() if not k.startswith("costlens.r")} for a, _ in points]
    return {" ".join(map(str, a.values())): v for a, (_, v) in zip(own, points, strict=True)}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("process.cpu.time", {"user": 90.0, "system": 30.0}),
        ("costlens.loader.workers", {"alive": 3, "died": 1}),
        ("costlens.loader.cpu.time", {"": 150.0}),
        ("costlens.dataset.io", {"": 240_000}),
        ("system.disk.io", {"read": 1260, "write": 1320}),
        ("system.network.io", {"receive": 1860, "transmit": 1920}),
        ("costlens.infiniband.io", {"receive": 2460, "transmit": 2520}),
        ("costlens.container.cpu.periods", {"throttled": 120, "free": 480}),
        ("container.memory.available", {"": 1_000}),
    ],
)
def test_metrics_show_what_the_record_says(name: str, expected: dict[str, float]) -> None:
    """Each attribute value has its own number; sums stay sums."""
    assert _values(name, complete()) == expected


def test_modes_of_the_cpu_sum_to_its_time() -> None:
    """Eight CPUs for a minute are 480 seconds, whatever they did."""
    assert sum(_values("system.cpu.time", complete()).values()) == pytest.approx(480.0)


def test_what_is_not_known_yields_no_point() -> None:
    """No host, a rank that does not speak for its node, and a machine without a limit."""
    for host in (None, HostPart(process=ProcessPart(), node=NodePart()), HostPart()):
        run = Rehearsal()
        run.host = host
        assert {m.name: _values(m.name, run) for m in HOST_METRICS if _values(m.name, run)} == {}


def test_durations_of_reads_have_buckets_of_their_own() -> None:
    """A histogram with the record's bounds, of which no more series are counted than there are."""
    metric = next(m for m in METRICS if m.name == "costlens.dataset.read.duration")
    ((_, value),) = read_points(metric, complete().look())
    assert isinstance(value, Histogram)
    assert value.bounds_s == metric.bounds_s
    assert (value.count, sum(value.buckets), value.sum_ns) == (240, 240, 15 * 10**9)
    assert metric.max_series == len(metric.bounds_s) + 3


def test_a_period_tells_what_happened_in_it() -> None:
    """Sums are differences, shares are over the period, levels are those at its end."""
    found = summarize_host(busy_host(60), busy_host(120))
    assert found["costlens.process.cpus"] == pytest.approx(2.0)
    assert found["costlens.loader.cpus"] == pytest.approx(2.5)
    assert found["costlens.node.cpu.ratio"] == pytest.approx(5.5 / 8)
    assert found["costlens.container.cpu.ratio"] == pytest.approx(0.75)
    assert found["costlens.container.cpu.throttled.ratio"] == pytest.approx(0.2)
    assert found["costlens.dataset.io"] == 240_000
    assert found["system.network.io.receive"] == 31 * 60
    assert found["container.memory.available"] == 1_000


def test_a_period_tells_nothing_that_is_not_known() -> None:
    """Without a sample before it there is no difference; without a host there is nothing."""
    assert summarize_host(None, None) == {}
    levels = set(summarize_host(None, busy_host()))
    assert levels == set(host_periods._LEVELS)
    bare = HostPart(sampled_s=60, process=ProcessPart(memory_bytes=5))
    assert summarize_host(HostPart(), bare) == {"process.memory.usage": 5}
    assert summarize_host(bare, bare) == {"process.memory.usage": 5}


def test_what_comes_up_in_a_period_began_at_nothing() -> None:
    """The first worker and the first read of a run are counted in full."""
    before = HostPart(sampled_s=10)
    after = HostPart(
        sampled_s=20, loader=LoaderPart(cpu_s=5.0), reads=ReadsPart(num_bytes=7, num_reads=1)
    )
    found = summarize_host(before, after)
    assert found["costlens.loader.cpus"] == 0.5
    assert found["costlens.dataset.io"] == 7


def test_every_field_that_is_named_exists() -> None:
    """A misspelt path would be an error only where its part is there."""
    host = busy_host()
    for path in (*host_periods._LEVELS.values(), *host_periods._SUMS.values()):
        assert look_up(host, path) is not None, path


def _page(record: Any) -> str:
    console = Console(width=80, force_terminal=False)
    with console.capture() as capture:
        render(record, console)
    return capture.get()


def test_the_report_says_what_matters_of_the_host() -> None:
    """CPU, memory and reads in a line each, and what held the run back."""
    records = [
        make_record(
            rank=8 * rank,  # eight ranks a host
            host=busy_host(100).model_copy(update={"node": None} if rank else {}),
        )
        for rank in range(2)
    ]
    merged = merge(records, now=records[0].attempt.heartbeat_time)
    assert [host.host_name for host in merged.host] == ["node-0", "node-1"]
    page = " ".join(_page(merged).split())
    assert "5.00 by loader workers (6 alive)" in page
    assert "14.0 kB by the training · 1.80 kB by loader workers · 1.00 kB left" in page
    assert "800 kB in 800 reads · mean 62.5 ms · longest 1.50 s" in page
    assert "node-0: 1 loader worker died" in page
    assert "node-1: the limit of 4.00 CPUs stopped it in 20.0 % of its periods" in page
    assert "node-1: 1.00 kB of 50.0 kB memory is left until it is killed" in page
    assert "Host" not in _page(merge([make_record()], now=0.0))


def test_every_period_span_tells_of_the_host_in_its_own_time() -> None:
    """Two periods of a minute differ in what was read, and each knows its shares."""
    run = Rehearsal()
    run.host = busy_host(1)
    tracing = Tracing(run).start()
    for minute in (1, 2):
        run.host = busy_host(1 + 60 * minute)
        tracing.windows(1, steps=60)
    tracing.end()
    periods = [span.attributes or {} for span in tracing.named("costlens.rank.period")]
    assert [period["costlens.dataset.reads"] for period in periods] == [240, 240]
    assert [period["costlens.process.cpus"] for period in periods] == [2.0, 2.0]
