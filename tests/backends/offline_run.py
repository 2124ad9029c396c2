"""A rehearsed run that keeps its telemetry in files, and may send it as well."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from costlens.config import Config
from costlens.core.log import RunContext
from costlens.core.snapshot import Exporter
from costlens.export.otel_endpoint import build_exporters, read_settings
from costlens.export.otel_file import TelemetryWorkers
from costlens.export.otel_logs import LogsExporter
from costlens.export.otel_metrics import MetricsExporter
from costlens.export.otel_spans import OwnSpans
from costlens.export.otel_traces import TracesExporter
from costlens.export.otlp_file import SegmentWriter
from costlens.export.record import RecordExporter
from costlens.storage.identity import Identity
from costlens.storage.run_folder import RunFolder
from costlens.storage.store import Store
from tests.fixtures_otlp import OtlpReceiver
from tests.unit.export.rehearsal import Rehearsal

RUN = "run-a"


class OfflineRun:
    """One rank of one attempt; what ``OTEL_*`` asks for is sent, too.

    Args:
        run_dir: Holds the run folders.
        run: What happens.
        **limits: Arguments of ``SegmentWriter``.
    """

    def __init__(self, run_dir: str, run: Rehearsal, **limits: Any) -> None:
        self.run = run
        self.folder = RunFolder(Store(run_dir), RUN)
        number, rank = run.state.number, run.state.rank.rank
        for attempt in range(1, number + 1):
            self.folder.claim_attempt(f"key-{attempt}", {})
        identity = Identity(RUN, number, "key", self.folder)
        self.writer = SegmentWriter(
            lambda: identity,
            rank,
            clock=lambda: run.now_ns,
            **{"max_bytes": 64 * 1024 * 1024, **limits},
        )
        self.workers = TelemetryWorkers(build_exporters(read_settings()), self.writer)
        self.workers.start()
        traces = TracesExporter(Config(), OwnSpans(self.workers))
        self._context = RunContext()
        self._exporters: tuple[Exporter, ...] = (
            RecordExporter(lambda: self.folder),
            traces,
            MetricsExporter(self.workers, take_exemplars=traces.take_exemplars),
            LogsExporter(
                self.workers,
                self._context,
                wall_clock=lambda: run.state.anchor.to_wall_ns(run.now_ns),
            ),
        )
        first = run.look(opens=True)
        for exporter in self._exporters:
            exporter.start(first)

    def windows(self, num: int) -> None:
        """Close windows of ten usual iterations, with a log event each."""
        for number in range(num):
            self.run.steps(10)
            self.run.log(loss=float(number))
            self._context.log.warning("costlens.test", number=number, message="a window")
            snapshot = self.run.look()
            for exporter in self._exporters:
                exporter.export(snapshot)
            self.settle()

    def settle(self) -> None:
        """Wait until the workers are through: the windows of a rehearsal take no ten seconds."""
        deadline = time.monotonic() + 30
        while any(w._queue or w._num_in_flight for w in self.workers._workers.values()):
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def end(self) -> None:
        """End the attempt and close all segments."""
        snapshot = self.run.end()
        for exporter in self._exporters:
            exporter.export(snapshot)
        self.close()

    def close(self) -> None:
        """Flush and close without a word in the record, as far as it is open."""
        for exporter in self._exporters:
            exporter.finish(0)
        health = self.workers.close(30.0)
        assert {signal: h.items_dropped for signal, h in health.items()} == dict.fromkeys(health, 0)

    def crash(self) -> None:
        """Stop without closing anything, as a kill would."""
        self._exporters[-1].finish(0)
        self.writer._parts.clear()
        self.workers.close(30.0)


def received(receiver: OtlpReceiver) -> list[bytes]:
    """Return each span, data point and log record with all it belongs to, sorted."""
    items = [*receiver.spans(), *receiver.logs(), *receiver.points()]
    return sorted(
        b"\0".join(
            (
                getattr(item, "name", "").encode(),
                repr(sorted(item.resource.items())).encode(),
                item.proto.SerializeToString(deterministic=True),
            )
        )
        for item in items
    )


def requests(receiver: OtlpReceiver) -> list[bytes]:
    """Return the bodies of the accepted requests, sorted."""
    return sorted(request.body for request in receiver.requests if request.accepted)


def num_lines(runs: Iterable[OfflineRun]) -> int:
    """Return how many lines the runs have in closed segments."""
    folder = next(iter(runs)).folder.telemetry
    return sum((folder.read(s) or b"").count(b"\n") for s in folder.list().closed)
