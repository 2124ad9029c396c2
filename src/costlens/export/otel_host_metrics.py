"""Metrics for a host application that has a meter provider of its own: it reads the catalogue.

Used instead of ``otel_metrics`` where ``host_meter_provider`` finds one; no endpoint, thread or
resource of ours takes part then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from weakref import WeakKeyDictionary

from opentelemetry.metrics import CallbackOptions, Observation, get_meter_provider
from opentelemetry.sdk.metrics import MeterProvider

from costlens.core.snapshot import Snapshot
from costlens.core.window import Histogram
from costlens.export.catalog import METRICS, Metric, read_points
from costlens.export.catalog_host import HOST_PREFIXES
from costlens.export.otel_ids import run_key

__all__ = ["HostMetricsExporter", "host_meter_provider"]


def host_meter_provider() -> MeterProvider | None:
    """Return the meter provider the host application has set, or None; sets nothing itself."""
    provider = get_meter_provider()
    return provider if isinstance(provider, MeterProvider) else None


class HostMetricsExporter:
    """Lets the host application's meter provider read the newest window when it collects.

    A provider's instruments can be read or added to, not filled with ready buckets, and adding
    every iteration one by one is what the pipeline avoids: ``costlens.iteration.duration`` is left
    out with its exemplars (its mean remains: phase time over iterations). ``process.*`` is left to
    the host, whose process it is.

    Args:
        provider: What ``host_meter_provider`` returned.
        version: Version of costlens, for the instrumentation scope.
    """

    name = "otel_metrics"

    def __init__(self, provider: MeterProvider, version: str) -> None:
        source = _sources.get(provider)
        if source is None:
            source = _sources[provider] = _Source()
            _register(provider, version, source)
        self._source = source

    def start(self, snapshot: Snapshot) -> None:
        """Show the host what is known before the first window, once an attempt."""
        before = self._source.snapshot
        if before is None or run_key(before.record) != run_key(snapshot.record):
            self._source.snapshot = snapshot

    def export(self, snapshot: Snapshot) -> None:
        """Show the host a closed window; a run's last one stays, for the host collects later."""
        self._source.snapshot = snapshot

    def finish(self, deadline_ns: int) -> None:
        """Do nothing: the host owns the provider, its exporters and when they flush."""


class _Source:
    """What the instruments at a host's meter provider read."""

    def __init__(self) -> None:
        self.snapshot: Snapshot | None = None

    def observe(self, metric: Metric) -> Callable[[CallbackOptions], Iterable[Observation]]:
        """Return the callback of a metric; the host's reader calls it on a thread of its own."""

        def callback(_options: CallbackOptions) -> Iterable[Observation]:
            if self.snapshot is None:
                return []
            return [
                Observation(value, attributes)
                for attributes, value in read_points(metric, self.snapshot)
                if not isinstance(value, Histogram)
            ]

        return callback


# Instruments cannot be taken back: a second run of the process goes on with those of the first.
_sources: WeakKeyDictionary[MeterProvider, _Source] = WeakKeyDictionary()


def _register(provider: MeterProvider, version: str, source: _Source) -> None:
    meter = provider.get_meter("costlens", version)
    create = {
        "counter": meter.create_observable_counter,
        "updowncounter": meter.create_observable_up_down_counter,
        "gauge": meter.create_observable_gauge,
    }
    for metric in METRICS:
        if metric.kind in create and not metric.name.startswith(HOST_PREFIXES):
            create[metric.kind](
                metric.name,
                callbacks=[source.observe(metric)],
                unit=metric.unit,
                description=metric.description,
            )
