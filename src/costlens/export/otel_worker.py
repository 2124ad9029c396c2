"""Carries ready batches to a back-end on one thread per signal, bounded whatever the back-end does.

The pipeline thread submits; a worker exports, retries and gives up; ``ExportWorkers.close`` ends
all of them under one deadline. The export itself is a port, so nothing here depends on OTLP.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, Generic, Literal, TypeVar

from costlens.core.clock import NS_PER_S, Clock
from costlens.core.guard import faults, pid_guard
from costlens.core.log import log
from costlens.core.telemetry_records import ExportHealth
from costlens.export.otel_breaker import Breaker
from costlens.export.otel_noise import FailureLog
from costlens.export.otel_port import BatchExporter, ExportResult

__all__ = [
    "DropReason",
    "ExportWorker",
    "ExportWorkers",
    "WorkerState",
]

BatchT = TypeVar("BatchT")

MAX_BATCHES = 32
"""Batches a queue holds; at one per 10 s window an outage of five minutes loses nothing."""

_IMPATIENT_S = 1.0
_ABORT_S = 0.2

WorkerState = Literal["ok", "failing", "open", "stopped", "inert"]
DropReason = Literal["queue_full", "export_failed", "shutdown"]


_FAULT = ExportResult(ok=False, error_type="fault")


class ExportWorker(Generic[BatchT]):
    """One signal's queue and thread. In a fork of its process it does nothing at all.

    Args:
        signal: traces, metrics or logs; names the thread.
        exporter: The port.
        clock: Monotonic nanoseconds.
        breaker: When exports may be tried; its own by default.
        failure_log: What is said about failures; its own by default.
    """

    def __init__(
        self,
        signal: str,
        exporter: BatchExporter[BatchT],
        clock: Clock = time.monotonic_ns,
        breaker: Breaker | None = None,
        failure_log: FailureLog | None = None,
    ) -> None:
        self._signal = signal
        self._exporter = exporter
        # A generator of its own: the global one belongs to the training.
        self._breaker = breaker or Breaker(clock, spread=random.Random().uniform(0.8, 1.2))
        self._failure_log = failure_log or FailureLog(clock)
        self._is_our_process = pid_guard()
        self._wake = threading.Condition()
        self._queue: deque[tuple[BatchT, int]] = deque()
        self._num_in_flight = 0
        self._stage: Literal["running", "draining", "stopped"] = "running"
        self._is_aborted = False
        self._num_ok = 0
        self._num_failed = 0
        self._dropped: dict[DropReason, int] = dict.fromkeys(
            ("queue_full", "export_failed", "shutdown"), 0
        )
        self._last_error_type: str | None = None
        self._cpu_ns = 0
        self.thread = threading.Thread(
            target=self._run, name=f"costlens-export-{signal}", daemon=True
        )

    def submit(self, batch: BatchT, num_items: int) -> bool:
        """Return whether the batch is queued; a full queue drops its oldest.

        Never waits for an export; 2 µs, or 20 with waking the thread, on any thread.

        Args:
            batch: What the exporter takes; not to be changed afterwards.
            num_items: Spans, data points or log records in it.
        """
        if not self._is_our_process():
            return False
        with self._wake:
            if self._stage != "running":
                self._dropped["shutdown"] += num_items
                return False
            if len(self._queue) >= MAX_BATCHES:
                self._dropped["queue_full"] += self._queue.popleft()[1]
            self._queue.append((batch, num_items))
            self._wake.notify()
        return True

    def pump(self) -> None:
        """Export what may be exported now; worker thread, or a test without one."""
        while (taken := self._take()) is not None:
            result = faults.call(f"export.{self._signal}", self._exporter.export, taken[0])
            self._settle(taken, result or _FAULT)

    def drain(self) -> None:
        """Take no more batches, and try what is queued once more."""
        with self._wake:
            if self._stage == "running":
                self._stage = "draining"
            self._wake.notify()

    def give_up(self) -> int:
        """Count what is not exported as lost; return how many items were lost, whatever by."""
        with self._wake:
            self._dropped["shutdown"] += self._num_in_flight + sum(n for _, n in self._queue)
            self._num_in_flight = 0
            self._queue.clear()
            self._stage = "stopped"
            self._wake.notify()
            return sum(self._dropped.values())

    def abort(self) -> None:
        """Shut the exporter down, which ends the waits between its own retries; once."""
        if self._is_aborted:
            return
        self._is_aborted = True  # no batch is tried any more: an exporter that is shut down fails
        faults.call(f"export.{self._signal}.shutdown", self._exporter.shutdown)

    @property
    def is_failing(self) -> bool:
        """Return whether the last export failed."""
        return self._breaker.num_failures > 0

    @property
    def dropped(self) -> dict[DropReason, int]:
        """Return the items lost so far, by reason."""
        return dict(self._dropped)

    @property
    def cpu_s(self) -> float:
        """Return the CPU seconds that exporting has cost on the worker's thread."""
        return self._cpu_ns / NS_PER_S

    def health(self) -> ExportHealth:
        """Return the counts so far; any thread, no lock (a fork may have left it held)."""
        return ExportHealth(
            state=self._state(),
            exports_ok=self._num_ok,
            exports_failed=self._num_failed,
            items_dropped=sum(self._dropped.values()),
            last_error_type=self._last_error_type,
        )

    def _state(self) -> WorkerState:
        if not self._is_our_process():
            return "inert"
        if self._stage == "stopped":
            return "stopped"
        if self._breaker.is_open:
            return "open"
        return "failing" if self.is_failing else "ok"

    def _run(self) -> None:
        faults.call("export.suppress", _suppress_instrumentation)
        while True:
            faults.call(f"export.{self._signal}.worker", self.pump)
            self._cpu_ns = time.thread_time_ns()
            with self._wake:
                if self._is_aborted or (self._stage != "running" and not self._queue):
                    self._stage = "stopped"
                    break
                if (pause_ns := self._pause_ns()) != 0:
                    self._wake.wait(None if pause_ns is None else pause_ns / NS_PER_S)
        self.abort()

    def _pause_ns(self) -> int | None:
        """Return how long nothing can be done, None for until the next batch; the lock is held."""
        if not self._queue:
            return None
        return 0 if self._stage == "draining" else self._breaker.wait_ns()

    def _take(self) -> tuple[BatchT, int] | None:
        with self._wake:
            if self._is_aborted or self._pause_ns() != 0:
                return None
            taken = self._queue.popleft()
            self._num_in_flight = taken[1]
            return taken

    def _settle(self, taken: tuple[BatchT, int], result: ExportResult) -> None:
        with self._wake:
            if self._stage == "stopped":  # given up meanwhile, and counted as lost
                return
            self._num_in_flight = 0
            self._breaker.record(ok=result.ok)
            if result.ok:
                self._num_ok += 1
            else:
                self._num_failed += 1
                self._last_error_type = result.error_type
                self._keep_or_drop(taken, result)
        if result.ok:
            self._failure_log.succeeded(self._signal)
        else:
            self._failure_log.failed(self._signal, result.error_type, result.hint)

    def _keep_or_drop(self, taken: tuple[BatchT, int], result: ExportResult) -> None:
        """Queue a failed batch again if that can help; the lock is held."""
        if not result.is_retryable:
            self._dropped["export_failed"] += taken[1]
        elif self._stage == "draining":  # the one last attempt failed: the others would, too
            self._dropped["shutdown"] += taken[1] + sum(n for _, n in self._queue)
            self._queue.clear()
        elif len(self._queue) >= MAX_BATCHES:
            self._dropped["queue_full"] += taken[1]
        else:
            self._queue.appendleft(taken)


class ExportWorkers:
    """The workers of all signals of a run.

    Args:
        exporters: One port per signal that is switched on; may be empty.
        clock: Monotonic nanoseconds.
    """

    def __init__(
        self, exporters: Mapping[str, BatchExporter[Any]], clock: Clock = time.monotonic_ns
    ) -> None:
        self._clock = clock
        self._is_our_process = pid_guard()
        self._is_closed = False
        failure_log = FailureLog(clock)
        self._workers: dict[str, ExportWorker[Any]] = {
            signal: ExportWorker(signal, exporter, clock, failure_log=failure_log)
            for signal, exporter in exporters.items()
        }

    def start(self) -> None:
        """Start the threads; once, before the first step. None starts later, let alone at exit."""
        for worker in self._workers.values():
            worker.thread.start()

    def __contains__(self, signal: str) -> bool:
        """Return whether a signal is exported."""
        return signal in self._workers

    def submit(self, signal: str, batch: object, num_items: int) -> bool:
        """Return whether the batch is queued; False for a signal that is not exported.

        See :meth:`ExportWorker.submit`.
        """
        worker = self._workers.get(signal)
        return worker is not None and worker.submit(batch, num_items)

    def health(self) -> dict[str, ExportHealth]:
        """Return the health of each exported signal; any thread, no I/O."""
        return {signal: worker.health() for signal, worker in self._workers.items()}

    def dropped(self) -> dict[str, dict[DropReason, int]]:
        """Return the items lost so far, by signal and reason."""
        return {signal: worker.dropped for signal, worker in self._workers.items()}

    @property
    def cpu_s(self) -> float:
        """Return the CPU seconds that exporting has cost, all signals together."""
        return sum(worker.cpu_s for worker in self._workers.values())

    def close(self, deadline_s: float = 3.0) -> dict[str, ExportHealth]:
        """Flush, end the threads and return the final health; says in one line what was lost.

        All signals share the deadline. A back-end that failed last time gets a second at most. A
        thread stuck in a system call is left behind: it is a daemon and holds nothing up.

        Args:
            deadline_s: Seconds this may take, >= 0.
        """
        if self._is_closed or not self._is_our_process():
            return self.health()
        self._is_closed = True
        start_ns = self._clock()
        abort_s = min(_ABORT_S, deadline_s)
        for worker in self._workers.values():
            worker.drain()
        for worker in self._workers.values():
            patience_s = min(deadline_s, _IMPATIENT_S) if worker.is_failing else deadline_s
            self._join(worker, start_ns, patience_s - abort_s)
        stuck = [worker for worker in self._workers.values() if worker.thread.is_alive()]
        for worker in stuck:
            worker.abort()
        for worker in stuck:
            self._join(worker, self._clock(), abort_s / len(stuck))
        lost = {signal: worker.give_up() for signal, worker in self._workers.items()}
        if any(lost.values()):
            log.warning(
                "costlens.export.lost",
                num_items={signal: num for signal, num in lost.items() if num},
                message="telemetry that did not get through",
            )
        return self.health()

    def _join(self, worker: ExportWorker[Any], start_ns: int, limit_s: float) -> None:
        """Wait for a worker's thread until ``limit_s`` seconds after ``start_ns``."""
        left_s = limit_s - (self._clock() - start_ns) / NS_PER_S
        if worker.thread.is_alive() and left_s > 0:
            worker.thread.join(left_s)


def _suppress_instrumentation() -> None:
    """Keep an instrumented host from tracing our own calls, for the life of this thread."""
    from opentelemetry.context import (
        _SUPPRESS_HTTP_INSTRUMENTATION_KEY,
        _SUPPRESS_INSTRUMENTATION_KEY,
        attach,
        set_value,
    )

    context = set_value(_SUPPRESS_INSTRUMENTATION_KEY, True)
    attach(set_value(_SUPPRESS_HTTP_INSTRUMENTATION_KEY, True, context))
