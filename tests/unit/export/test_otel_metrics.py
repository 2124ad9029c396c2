"""Metrics over OpenTelemetry.

Data points of a window, and the host application's meter provider.
"""

from __future__ import annotations

import gc
import logging
import weakref
from typing import Any

import pytest
from opentelemetry import metrics as api
from opentelemetry.sdk.metrics import Exemplar, MeterProvider, ObservableCounter
from opentelemetry.sdk.metrics import Histogram as HistogramInstrument
from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader
from opentelemetry.util._once import Once

from costlens.core.clock import NS_PER_S
from costlens.core.phases import Phase
from costlens.core.snapshot import Snapshot
from costlens.export.catalog import METRICS
from costlens.export.catalog_host import HOST_PREFIXES
from costlens.export.otel_host_metrics import HostMetricsExporter, host_meter_provider
from costlens.export.otel_metrics import MetricsExporter
from tests.unit.export.rehearsal import WALL_NS, Outbox, Rehearsal, complete

DELTA = AggregationTemporality.DELTA


class Exports:
    """A metrics exporter, and what it handed over."""

    def __init__(self, **options: Any) -> None:
        self.outbox = Outbox()
        self.exporter = MetricsExporter(self.outbox, **options)  # type: ignore[arg-type]

    def export(self, snapshot: Snapshot) -> dict[str, Any]:
        """Export a window and return its metrics by name."""
        self.exporter.export(snapshot)
        signal, data, num_items = self.outbox.batches[-1]
        assert signal == "metrics"
        found = data.resource_metrics[0].scope_metrics[0].metrics  # type: ignore[attr-defined]
        assert num_items == sum(len(metric.data.data_points) for metric in found)
        return {metric.name: metric for metric in found}


def only(metric: Any) -> Any:
    """Return the one data point of a metric."""
    (point,) = metric.data.data_points
    return point


def test_durations_of_different_kinds_fall_into_different_buckets() -> None:
    """C094.

    0.02, 0.3, 2 and 45 s lie in four buckets, between bounds from 1 ms to at least 60 s.
    """
    run = Rehearsal()
    run.step()
    for seconds in (0.02, 0.3, 2, 45):
        run.step({Phase.FORWARD: seconds})
    point = only(Exports().export(run.look())["costlens.iteration.duration"])
    assert [count for count in point.bucket_counts if count] == [1, 1, 1, 1]
    assert point.count == 4
    assert point.sum == pytest.approx(47.32)
    assert point.explicit_bounds[0] <= 0.001
    assert point.explicit_bounds[-1] >= 60


def test_points_are_cumulative_since_the_attempt_began() -> None:
    """Counters grow over windows and carry the attempt's start; values do not start anew."""
    run, exports = Rehearsal(), Exports()
    run.steps(10)
    exports.export(run.look())
    run.steps(5)
    found = exports.export(run.look())
    point = only(found["costlens.iterations"])
    assert point.value == 15
    assert point.start_time_unix_nano == pytest.approx(WALL_NS, abs=1000)
    assert point.time_unix_nano == WALL_NS + 15 * NS_PER_S
    data = found["costlens.iterations"].data
    assert (data.is_monotonic, data.aggregation_temporality) == (True, AggregationTemporality(2))
    assert found["costlens.run.state"].data.is_monotonic is False


def test_differences_where_the_back_end_prefers_them() -> None:
    """Under delta temporality counters and buckets hold what was added since the export before.

    What goes up and down stays as it is.
    """
    exports = Exports(temporality={ObservableCounter: DELTA, HistogramInstrument: DELTA})
    run = Rehearsal()
    run.steps(11)
    first = exports.export(run.look())
    run.steps(5)
    second = exports.export(run.look())
    assert only(first["costlens.iterations"]).value == 11
    point = only(second["costlens.iterations"])
    assert point.value == 5
    assert point.start_time_unix_nano == WALL_NS + 11 * NS_PER_S
    durations = second["costlens.iteration.duration"]
    assert (only(durations).count, sum(only(durations).bucket_counts)) == (5, 5)
    assert only(durations).sum == pytest.approx(5)
    assert durations.data.aggregation_temporality is DELTA
    states = second["costlens.run.state"].data
    assert states.aggregation_temporality is AggregationTemporality.CUMULATIVE
    assert sum(point.value for point in states.data_points) == 1


def test_lowmemory_keeps_counters_cumulative() -> None:
    """The preference lowmemory asks differences of histograms only.

    Ours are observable counters.
    """
    exports = Exports(temporality={HistogramInstrument: DELTA})
    run = Rehearsal()
    run.steps(11)
    exports.export(run.look())
    run.steps(5)
    found = exports.export(run.look())
    assert only(found["costlens.iterations"]).value == 16
    assert only(found["costlens.iteration.duration"]).count == 5


def test_the_first_look_exports_zeros() -> None:
    """Starting exports every rare counter at 0 before the first window has closed."""
    outbox = Outbox()
    exporter = MetricsExporter(outbox)  # type: ignore[arg-type]
    exporter.start(Rehearsal().look(opens=True))
    (_, data, _) = outbox.batches[0]
    found = {m.name: m for m in data.resource_metrics[0].scope_metrics[0].metrics}  # type: ignore[attr-defined]
    assert {p.value for p in found["costlens.telemetry.faults"].data.data_points} == {0}


def test_a_second_fit_does_not_go_back() -> None:
    """Going on with an attempt exports nothing before its next window.

    The first look of a fit does not know the quality so far: its counters would go back to 0.
    """
    run, exports = complete(), Exports()
    run.log(loss=float("nan"))
    exports.exporter.start(run.look(opens=True))
    exports.export(run.end())
    exports.exporter.start(run.look(opens=True))
    assert len(exports.outbox.batches) == 2
    found = exports.export(run.look())["costlens.nonfinite.events"]
    assert sum(point.value for point in found.data.data_points) == 1


def test_each_attempt_has_a_resource_of_its_own() -> None:
    """C025: instance ids differ between ranks and attempts; a new attempt's values start anew."""
    exports = Exports(temporality={ObservableCounter: DELTA})
    ids = []
    for run in (Rehearsal(), Rehearsal(attempt=2), Rehearsal(rank=1, world_size=2, attempt=3)):
        run.steps(3)
        assert only(exports.export(run.look())["costlens.iterations"]).value == 3
        data: Any = exports.outbox.batches[-1][1]
        ids.append(data.resource_metrics[0].resource.attributes["service.instance.id"])
    assert len(set(ids)) == 3


def test_a_bucket_shows_its_newest_exemplar_once() -> None:
    """Of several exemplars the newest of a bucket is exported, and only with one window."""
    pending = [
        Exemplar({}, 1.5, 10, 7, 70),
        Exemplar({}, 1.6, 20, 8, 80),
        Exemplar({}, 9.0, 5, 9, 90),
    ]

    def take() -> list[Exemplar]:
        taken, pending[:] = list(pending), []
        return taken

    exports, run = Exports(take_exemplars=take), complete()
    point = only(exports.export(run.look())["costlens.iteration.duration"])
    assert [(exemplar.span_id, exemplar.trace_id) for exemplar in point.exemplars] == [
        (8, 80),
        (9, 90),
    ]
    run.step()
    assert only(exports.export(run.look())["costlens.iteration.duration"]).exemplars == []


@pytest.fixture
def global_meter(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the module that holds the global meter provider, unset, and put it back afterwards."""
    from opentelemetry.metrics import _internal

    monkeypatch.setattr(_internal, "_METER_PROVIDER", None)
    monkeypatch.setattr(_internal, "_METER_PROVIDER_SET_ONCE", Once())
    return _internal


def collected(reader: InMemoryMetricReader) -> dict[str, Any]:
    """Return what a host's reader collects, by metric name."""
    data = reader.get_metrics_data()
    if data is None:
        return {}
    return {
        m.name: m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics
    }  # fmt: skip


def test_a_host_without_a_provider_stays_without(
    global_meter: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """C093: looking for a provider and exporting sets none, and the user can still set theirs."""
    assert host_meter_provider() is None
    Exports().export(complete().look())
    assert global_meter._METER_PROVIDER is None
    provider = MeterProvider()
    with caplog.at_level(logging.WARNING):
        api.set_meter_provider(provider)
    assert api.get_meter_provider() is provider
    assert not caplog.records
    provider.shutdown()


def test_a_hosts_provider_is_used(global_meter: Any) -> None:
    """C093, the other order.

    A provider that is there already is found, and reads the newest window of everything but the
    histograms and what its own instrumentation may tell of the host.
    """
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    api.set_meter_provider(provider)
    assert host_meter_provider() is provider
    exporter = HostMetricsExporter(provider, "0.1.0")
    assert collected(reader) == {}  # nothing is known yet
    run = complete()
    exporter.start(run.look(opens=True))
    exporter.export(run.look())
    exporter.start(run.look(opens=True))  # a second fit
    found = collected(reader)
    own = [m for m in METRICS if m.kind != "histogram" and not m.name.startswith(HOST_PREFIXES)]
    expected = {metric.name for metric in own}
    assert set(found) == expected
    assert only(found["costlens.iterations"]).value == 20
    assert only(found["costlens.iterations"]).attributes == {
        "costlens.run.id": "run-a",
        "costlens.rank": 0,
    }
    provider.shutdown()


def test_a_second_run_reads_through_the_instruments_of_the_first(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A notebook that starts one run after another registers each instrument once."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    with caplog.at_level(logging.WARNING):
        HostMetricsExporter(provider, "0.1.0").export(complete().look())
        run = Rehearsal(run_id="run-b")
        run.steps(3)
        HostMetricsExporter(provider, "0.1.0").export(run.look())
    assert not caplog.records
    point = only(collected(reader)["costlens.iterations"])
    assert (point.value, point.attributes["costlens.run.id"]) == (3, "run-b")
    provider.shutdown()


def test_a_hosts_provider_is_not_kept_alive() -> None:
    """A provider its owner drops is free to go: nothing of ours holds on to it."""
    provider = MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)
    HostMetricsExporter(provider, "0.1.0").export(complete().look())
    gone = weakref.ref(provider)
    provider.shutdown()
    del provider
    gc.collect()
    assert gone() is None
