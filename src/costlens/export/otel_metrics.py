"""Metrics over OpenTelemetry: the catalogue's values of a window as the SDK's own data points.

No instrument records anything: the pipeline has aggregated already, so a window costs one pass over
the catalogue. ``otel_host_metrics`` is for applications that have a meter provider of their own.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from opentelemetry.sdk.metrics import Histogram as HistogramInstrument
from opentelemetry.sdk.metrics import ObservableCounter
from opentelemetry.sdk.metrics import export as sdk
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from costlens.core.clock import NS_PER_S
from costlens.core.snapshot import Snapshot
from costlens.core.window import ITERATION_BOUNDS_S, Histogram
from costlens.export.catalog import METRICS, Metric, read_points
from costlens.export.otel_endpoint import build_resource
from costlens.export.otel_ids import run_key
from costlens.export.otel_port import Outbox
from costlens.export.readings import Point, Value, label_attributes

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import Exemplar
    from opentelemetry.sdk.resources import Resource

__all__ = ["MetricsExporter"]

_CUMULATIVE = sdk.AggregationTemporality.CUMULATIVE
_DELTA = sdk.AggregationTemporality.DELTA
# The metric whose values are spans as well.
_WITH_EXEMPLARS = "costlens.iteration.duration"


class MetricsExporter:
    """Hands the catalogue's values to the worker of the ``metrics`` signal, once a window.

    Everything runs on the pipeline thread; a window takes about a millisecond there.

    Args:
        workers: Takes ready batches.
        take_exemplars: Returns the spans of iterations exported since it was last asked.
        temporality: What the back-end prefers, as the SDK's exporters keep it: cumulative, or the
            difference to the export before (``OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE``).
    """

    name = "otel_metrics"

    def __init__(
        self,
        workers: Outbox,
        *,
        take_exemplars: Callable[[], Iterable[Exemplar]] = tuple,
        temporality: Mapping[type, sdk.AggregationTemporality] | None = None,
    ) -> None:
        preferred = temporality or {}
        self._workers = workers
        self._take_exemplars = take_exemplars
        self._temporality = {
            # To the SDK a counter that is read, not added to, is an observable one.
            "counter": preferred.get(ObservableCounter, _CUMULATIVE),
            "histogram": preferred.get(HistogramInstrument, _CUMULATIVE),
        }
        self._identity: tuple[str, int] | None = None
        self._resource: Resource | None = None
        self._deltas = _Deltas()

    def start(self, snapshot: Snapshot) -> None:
        """Export what is known before the first window: counters that are rare start at 0.

        Once an attempt: when it goes on, as for a second fit, this look knows less than the last.
        """
        if run_key(snapshot.record) != self._identity:
            self.export(snapshot)

    def export(self, snapshot: Snapshot) -> None:
        """Export one point per known series."""
        record = snapshot.record
        identity = run_key(record)
        if self._resource is None or identity != self._identity:
            self._identity, self._deltas = identity, _Deltas()
            attributes = label_attributes(record.run)
            self._resource = build_resource(*identity, record.rank.rank, attributes)
        metrics: list[sdk.Metric] = []
        num_points = 0
        for metric in METRICS:
            points = list(read_points(metric, snapshot))
            if points:
                num_points += len(points)
                data = self._data(metric, points, snapshot)
                metrics.append(sdk.Metric(metric.name, metric.description, metric.unit, data))
        self._deltas.end_ns = _end_ns(snapshot)
        scope = InstrumentationScope("costlens", record.run.costlens_version)
        of_scope = sdk.ScopeMetrics(scope, metrics, schema_url="")
        of_resource = sdk.ResourceMetrics(self._resource, [of_scope], schema_url="")
        self._workers.submit("metrics", sdk.MetricsData([of_resource]), num_points)

    def finish(self, deadline_ns: int) -> None:
        """Do nothing: the last window is submitted, and the workers flush under one deadline."""

    def _data(
        self, metric: Metric, points: Sequence[Point], snapshot: Snapshot
    ) -> sdk.Sum | sdk.Gauge | sdk.Histogram:
        temporality = self._temporality.get(metric.kind, _CUMULATIVE)
        span_ns = (_start_ns(metric, snapshot), _end_ns(snapshot))
        if temporality is _DELTA:
            span_ns = (self._deltas.end_ns or span_ns[0], span_ns[1])
            points = self._deltas.take(metric.name, points)
        numbers = [
            sdk.NumberDataPoint(attributes, *span_ns, value)
            for attributes, value in points
            if not isinstance(value, Histogram)
        ]
        if metric.kind == "histogram":
            exemplars = (
                _one_per_bucket(self._take_exemplars()) if metric.name == _WITH_EXEMPLARS else []
            )
            return sdk.Histogram(_histogram_points(points, span_ns, exemplars), temporality)
        if metric.kind == "gauge":
            return sdk.Gauge(numbers)
        return sdk.Sum(numbers, temporality, is_monotonic=metric.kind == "counter")


def _histogram_points(
    points: Sequence[Point], span_ns: tuple[int, int], exemplars: Sequence[Exemplar]
) -> list[sdk.HistogramDataPoint]:
    return [
        sdk.HistogramDataPoint(
            attributes=attributes,
            start_time_unix_nano=span_ns[0],
            time_unix_nano=span_ns[1],
            count=value.count,
            sum=value.sum_ns / NS_PER_S,
            bucket_counts=value.buckets,
            explicit_bounds=value.bounds_s,
            # Optional in the protocol though not in the SDK's annotations: nobody keeps them.
            min=None,  # type: ignore[arg-type]
            max=None,  # type: ignore[arg-type]
            exemplars=exemplars,
        )
        for attributes, value in points
        if isinstance(value, Histogram)
    ]


class _Deltas:
    """Remembers the last cumulative value of each series, for back-ends that want differences."""

    def __init__(self) -> None:
        self.end_ns: int | None = None
        self._last: dict[tuple[str, frozenset[object]], Value] = {}

    def take(self, name: str, points: Iterable[Point]) -> list[Point]:
        """Return the points with what was added since the last call for each of them."""
        deltas: list[Point] = []
        for attributes, value in points:
            key = (name, frozenset(attributes.items()))
            deltas.append((attributes, _subtract(value, self._last.get(key))))
            self._last[key] = value
        return deltas


def _subtract(now: Value, before: Value | None) -> Value:
    if isinstance(now, Histogram):
        if not isinstance(before, Histogram):
            return now
        buckets = [new - old for new, old in zip(now.buckets, before.buckets, strict=True)]
        return Histogram(
            buckets, now.count - before.count, now.sum_ns - before.sum_ns, now.bounds_s
        )
    return now if before is None or isinstance(before, Histogram) else now - before


def _start_ns(metric: Metric, snapshot: Snapshot) -> int:
    attempt = snapshot.record.attempt
    start_s = attempt.start_time
    if metric.since == "process" and attempt.process_start_time is not None:
        start_s = attempt.process_start_time
    return int(start_s * NS_PER_S)


def _end_ns(snapshot: Snapshot) -> int:
    return snapshot.anchor.to_wall_ns(snapshot.window.end_ns)


def _one_per_bucket(exemplars: Iterable[Exemplar]) -> list[Exemplar]:
    """Return the newest exemplar of each bucket, as the specification's own reservoir keeps it."""
    ordered = sorted(exemplars, key=lambda exemplar: exemplar.time_unix_nano)
    newest = {bisect_left(ITERATION_BOUNDS_S, exemplar.value): exemplar for exemplar in ordered}
    return [newest[bucket] for bucket in sorted(newest)]
