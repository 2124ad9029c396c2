"""The workers of a run that send telemetry and keep it in files.

The exporters submit each batch once to ``TelemetryWorkers``; one worker a signal sends it over
OTLP, one worker makes a line of it (``otel_lines``) and hands it to ``otlp_file``.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Mapping
from typing import Any

from costlens.core.clock import Clock
from costlens.core.telemetry_records import ExportHealth
from costlens.errors import StorageError
from costlens.export.otel_lines import encode_line
from costlens.export.otel_port import BatchExporter, ExportResult
from costlens.export.otel_worker import ExportWorkers
from costlens.export.otlp_file import SegmentWriter

__all__ = ["FILES", "FileExporter", "TelemetryWorkers"]

FILES = "files"
"""Name of the worker that writes files, beside those of the signals."""

_CLOSE: tuple[str, Any] = ("", None)


class FileExporter:
    """A back-end of files behind the port of ``otel_worker``; takes pairs of signal and batch.

    Args:
        writer: Keeps the lines.
    """

    def __init__(self, writer: SegmentWriter) -> None:
        self._writer = writer

    def export(self, batch: tuple[str, Any]) -> ExportResult:
        """Encode a batch and hand its line over; worker thread only, may block on the run folder.

        Args:
            batch: A signal and what the SDK's exporters take, or the order to close all segments.
        """
        signal, data = batch
        try:
            if batch is _CLOSE:
                self._writer.close()
            else:
                self._writer.add(signal, encode_line(signal, data))
        except StorageError as error:
            error_type = errno.errorcode.get(error.errno or 0, "StorageError")
            return ExportResult(ok=False, error_type=error_type, is_retryable=True, hint=str(error))
        return ExportResult(ok=True)

    def shutdown(self) -> None:
        """Do nothing: ``TelemetryWorkers.close`` has told the worker to close the segments."""


class TelemetryWorkers(ExportWorkers):
    """The workers of a run: one a signal that goes out over OTLP, one that files all signals.

    Args:
        exporters: One port per signal that goes out; may be empty.
        writer: Keeps what is filed; None files nothing.
        clock: Monotonic nanoseconds.
    """

    def __init__(
        self,
        exporters: Mapping[str, BatchExporter[Any]],
        writer: SegmentWriter | None = None,
        clock: Clock = time.monotonic_ns,
    ) -> None:
        files = {} if writer is None else {FILES: FileExporter(writer)}
        super().__init__({**exporters, **files}, clock)
        self._writer = writer
        self._num_unsaved = 0
        # A writer outlives its workers where a run is opened again.
        self._num_deleted_before = 0 if writer is None else writer.num_items_deleted

    def __contains__(self, signal: str) -> bool:
        """Return whether a signal is sent or filed."""
        return self._writer is not None or super().__contains__(signal)

    def submit(self, signal: str, batch: object, num_items: int) -> bool:
        """Return whether the batch is queued, to be sent or to be filed.

        See :meth:`ExportWorker.submit`.
        """
        is_filed = super().submit(FILES, (signal, batch), num_items)
        return super().submit(signal, batch, num_items) or is_filed

    def health(self) -> dict[str, ExportHealth]:
        """Return the health of each worker.

        What the size limit deleted, and in the end what could not be written, counts as dropped.
        """
        health = super().health()
        if self._writer is not None:
            num_deleted = self._writer.num_items_deleted - self._num_deleted_before
            num_dropped = health[FILES].items_dropped + num_deleted + self._num_unsaved
            health[FILES] = health[FILES].model_copy(update={"items_dropped": num_dropped})
        return health

    def close(self, deadline_s: float = 3.0) -> dict[str, ExportHealth]:
        """Close the segments, flush and end the threads; see :meth:`ExportWorkers.close`."""
        super().submit(FILES, _CLOSE, 0)
        super().close(deadline_s)
        if self._writer is not None:
            self._num_unsaved = self._writer.count_unsaved()
        return self.health()
