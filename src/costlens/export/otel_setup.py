"""OpenTelemetry of a run, put together: which exporters, over which workers, for each opening.

``exporting.py`` asks for it on the calling thread before the first step, because everything is
imported and built here; the exporters then run on the pipeline thread.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from costlens.config import Config
from costlens.core.attempt_state import AttemptState
from costlens.core.clock import NS_PER_S, Clock
from costlens.core.log import RunContext
from costlens.core.snapshot import Exporter, Snapshot
from costlens.core.telemetry_records import ExportHealth
from costlens.export.otel_endpoint import build_exporters, read_settings, read_traceparent
from costlens.export.otel_worker import ExportWorkers
from costlens.export.otlp_file import SegmentWriter, wants_files
from costlens.storage.identity import Identity

if TYPE_CHECKING:
    from costlens.export.otel_traces import TracesExporter

__all__ = ["Telemetry"]


class Telemetry:
    """The OpenTelemetry exporters of a run, from its first opening to its last.

    What has been exported is remembered over openings, so that a second fit writes no second
    marker and no counter starts again; threads and connections live from ``open`` to the end of
    the opening.

    Args:
        config: The settings.
        clock: Monotonic nanoseconds.
        state: The attempt: its rank, and the version of costlens.
        find_identity: Returns run and attempt, or None while they are not settled.
        context: What the log says of the run; gets the ids of its traces.
    """

    def __init__(
        self,
        config: Config,
        clock: Clock,
        state: AttemptState,
        find_identity: Callable[[], Identity | None],
        context: RunContext,
    ) -> None:
        self._config = config
        self._version = state.run.costlens_version
        self._context = context
        self._settings = read_settings()
        self._writer: SegmentWriter | None = None
        if wants_files(self._settings, asked=config.otlp_file):
            max_bytes = config.otlp_file_max_mb * 1024 * 1024
            self._writer = SegmentWriter(
                find_identity, state.rank.rank, max_bytes=max_bytes, clock=clock
            )
        self._workers = _Workers(clock)
        self._traces: TracesExporter | None = None
        self._metrics: Exporter | None = None

    def open(self) -> list[Exporter]:
        """Return the exporters of this opening, in the order in which a window reaches them.

        Takes 0.1–0.3 s where something is exported, and next to nothing otherwise.
        """
        uses_host = "opentelemetry.sdk" in sys.modules
        if not (self._settings.signals or self._writer or uses_host):
            return []
        from costlens.export.otel_file import TelemetryWorkers

        exporters = build_exporters(self._settings)
        ports = {str(signal): port for signal, port in exporters.items()}
        self._workers.open(TelemetryWorkers(ports, self._writer, self._workers.clock))
        opened: list[Exporter] = []
        if self._traces is None:
            self._traces = self._make_traces()
        if self._traces is not None:
            opened.append(self._traces)
        if self._metrics is None:
            temporality = getattr(exporters.get("metrics"), "temporality", None)
            self._metrics = self._make_metrics(temporality)
        if self._metrics is not None:
            opened.append(self._metrics)
        if "logs" in self._workers:
            from costlens.export.otel_logs import LogsExporter

            opened.append(LogsExporter(self._workers, self._context))
        if exporters or self._writer:
            opened.append(self._workers)
        return opened

    def _make_traces(self) -> TracesExporter | None:
        from costlens.export.otel_spans import OwnSpans, host_spans
        from costlens.export.otel_traces import TracesExporter

        spans = host_spans()
        if spans is None and "traces" not in self._workers:
            return None
        traces = TracesExporter(
            self._config, spans or OwnSpans(self._workers), traceparent=read_traceparent()
        )
        sources = self._context.sources
        sources["trace_id"] = lambda: (traces.current_ids() or (None, None))[0]
        sources["span_id"] = lambda: (traces.current_ids() or (None, None))[1]
        return traces

    def _make_metrics(self, temporality: object) -> Exporter | None:
        from costlens.export.otel_host_metrics import HostMetricsExporter, host_meter_provider

        provider = host_meter_provider()
        if provider is not None:
            return HostMetricsExporter(provider, self._version)
        if "metrics" not in self._workers:
            return None
        from costlens.export.otel_metrics import MetricsExporter

        return MetricsExporter(
            self._workers,
            take_exemplars=self._traces.take_exemplars if self._traces is not None else tuple,
            temporality=temporality,  # type: ignore[arg-type] # the SDK's own mapping
        )


class _Workers:
    """The workers of the present opening, with the health of all; the last exporter closes them."""

    name = "otel_workers"

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._live: ExportWorkers | None = None
        self._before: dict[str, ExportHealth] = {}

    def open(self, workers: ExportWorkers) -> None:
        self._before = self.health()
        self._live = workers
        workers.start()

    def __contains__(self, signal: str) -> bool:
        return self._live is not None and signal in self._live

    def submit(self, signal: str, batch: object, num_items: int) -> bool:
        return self._live is not None and self._live.submit(signal, batch, num_items)

    def health(self) -> dict[str, ExportHealth]:
        live = {} if self._live is None else self._live.health()
        return {
            signal: _add(self._before.get(signal), live.get(signal))
            for signal in sorted(self._before.keys() | live.keys())
        }

    @property
    def cpu_s(self) -> float:
        return 0.0 if self._live is None else self._live.cpu_s

    def start(self, snapshot: Snapshot) -> None:
        return None

    def export(self, snapshot: Snapshot) -> None:
        return None

    def finish(self, deadline_ns: int) -> None:
        if self._live is not None:
            self._live.close(max(0.0, (deadline_ns - self.clock()) / NS_PER_S))


def _add(before: ExportHealth | None, now: ExportHealth | None) -> ExportHealth:
    if before is None or now is None:
        return now or before or ExportHealth(state="inert")
    return now.model_copy(
        update={
            name: getattr(before, name) + getattr(now, name)
            for name in ("exports_ok", "exports_failed", "items_dropped")
        }
    )
