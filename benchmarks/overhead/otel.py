"""The OpenTelemetry SDK used in the obvious way: once a step, on the training thread."""

from __future__ import annotations

import time
from typing import Any

import pytorch_lightning as pl
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from benchmarks.overhead.subject import Subject

WINDOW_MS = 10_000  # of costlens, too
PHASES = ("data_wait", "transfer", "forward", "backward", "optimizer")


class _Spans(pl.Callback):
    def __init__(self, tracer: Any, num: int) -> None:
        self.tracer = tracer
        self.names = ("step", *PHASES)[:num]

    def on_train_batch_start(self, *args: Any) -> None:
        attributes = {"step": args[-1]}
        self.spans = [self.tracer.start_span(name, attributes=attributes) for name in self.names]

    def on_train_batch_end(self, *_: Any) -> None:
        for span in self.spans:
            span.end()


class _Records(pl.Callback):
    def __init__(self, meter: Any) -> None:
        self.histogram = meter.create_histogram("step.phase", unit="s")
        self.attributes = [{"phase": name, "rank": 0} for name in PHASES]

    def on_train_batch_start(self, *_: Any) -> None:
        self.begin_s = time.perf_counter()

    def on_train_batch_end(self, *_: Any) -> None:
        spent_s = time.perf_counter() - self.begin_s
        for attributes in self.attributes:
            self.histogram.record(spent_s, attributes)


class StepSpans(Subject):
    """Spans in every step, exported in batches.

    Args:
        endpoint: Where to.
        num: How many a step.
    """

    def __init__(self, endpoint: str, num: int) -> None:
        super().__init__()
        self.endpoint = endpoint
        self.num = num
        self.name = f"OpenTelemetry, {num} span{'s' * (num > 1)}"
        self.delivers = "steps in a trace" if num == 1 else "steps and their parts in a trace"

    def arm(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.provider = TracerProvider(shutdown_on_exit=False)
        exporter = OTLPSpanExporter(f"{self.endpoint}/v1/traces")
        self.provider.add_span_processor(BatchSpanProcessor(exporter))
        self.callbacks = [_Spans(self.provider.get_tracer("overhead"), self.num)]

    def close(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.provider.shutdown()


class StepHistograms(Subject):
    """Five records of a histogram a step, exported once a window."""

    name = "OpenTelemetry, 5 histogram records"
    delivers = "five durations as histograms"

    def __init__(self, endpoint: str) -> None:
        super().__init__()
        self.endpoint = endpoint

    def arm(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        exporter = OTLPMetricExporter(f"{self.endpoint}/v1/metrics")
        reader = PeriodicExportingMetricReader(exporter, export_interval_millis=WINDOW_MS)
        self.provider = MeterProvider([reader], shutdown_on_exit=False)
        self.callbacks = [_Records(self.provider.get_meter("overhead"))]

    def close(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.provider.shutdown()
