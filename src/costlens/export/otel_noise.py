"""What is said about failing exports: one line at first, then one per five minutes with a count.

The SDK logs every attempt, with text that the server chose, and some of it can hold header values.
On costlens's own export calls those records are caught here and only a closed set of words reaches
the log; what the host application exports and the root logger stay as they are.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from costlens.core.clock import NS_PER_S, Clock
from costlens.core.log import log

__all__ = ["FailureLog", "captured", "quiet_loggers"]

REPEAT_S = 300.0
"""Seconds between two lines about a cause of failure that goes on."""

_LIBRARIES = ("opentelemetry", "urllib3", "requests", "grpc")
_MAX_RECORDS = 16


@dataclass(slots=True)
class _Cause:
    next_ns: int
    num_failures: int = 0


class _Capture(threading.local):
    records: deque[logging.LogRecord] | None = None


class _CaptureFilter(logging.Filter):
    """Lets every record pass, except in a ``captured`` block of the same thread."""

    def filter(self, record: logging.LogRecord) -> bool:
        if _capture.records is None:
            return True
        _capture.records.append(record)
        return False


_capture = _Capture()
_filter = _CaptureFilter()


def quiet_loggers() -> None:
    """Put the filter on every logger that the export libraries have made so far, never on the root.

    A filter only sees records logged on its very logger, so each one needs it. It goes first: the
    SDK's own filter against repetition would hide how an export ended. Doing it again changes
    nothing.
    """
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if not isinstance(logger, logging.Logger) or name.partition(".")[0] not in _LIBRARIES:
            continue
        if _filter not in logger.filters:
            logger.filters.insert(0, _filter)


@contextmanager
def captured() -> Iterator[deque[logging.LogRecord]]:
    """Return the last log records of the export libraries on this thread, which go nowhere else."""
    before, _capture.records = _capture.records, deque(maxlen=_MAX_RECORDS)
    try:
        yield _capture.records
    finally:
        _capture.records = before


class FailureLog:
    """Writes about failing exports, rarely; shared by the signals of a run, any thread.

    Args:
        clock: Monotonic nanoseconds.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._logger = log
        self._lock = threading.Lock()
        self._causes: dict[tuple[str, str], _Cause] = {}
        self._told: set[str] = set()

    def failed(self, signal: str, error_type: str, hint: str | None) -> None:
        """Count a failed export; log the first of its cause, then one line per :data:`REPEAT_S`."""
        message = hint or "telemetry is not getting through; training goes on unharmed"
        now_ns = self._clock()
        with self._lock:
            cause = self._causes.setdefault((error_type, message), _Cause(now_ns))
            cause.num_failures += 1
            if now_ns < cause.next_ns:
                return
            num_failures, cause.num_failures = cause.num_failures, 0
            cause.next_ns = now_ns + int(REPEAT_S * NS_PER_S)
            self._told.add(signal)
        self._logger.warning(
            "costlens.export.failed",
            signal=signal,
            error_type=error_type,
            num_failures=num_failures,
            message=message,
        )

    def succeeded(self, signal: str) -> None:
        """Log the recovery of a signal, if its failure was logged."""
        with self._lock:
            was_told = signal in self._told
            self._told.discard(signal)
        if was_told:
            self._logger.info("costlens.export.recovered", signal=signal)
