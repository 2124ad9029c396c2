"""Queues, retries, shutdown and forks of the export workers, over ports that need no network."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Iterator

import pytest

from costlens.core.clock import NS_PER_S
from costlens.export.otel_breaker import Breaker
from costlens.export.otel_port import ExportResult
from costlens.export.otel_worker import MAX_BATCHES, ExportWorker, ExportWorkers
from tests.backends.otlp_clock import Hand
from tests.log_events import capture_events

OK = ExportResult(ok=True)
LATER = ExportResult(ok=False, error_type="http_503", is_retryable=True, hint="c:4318: silent")
NEVER = ExportResult(ok=False, error_type="http_400")


class Backend:
    """A port whose answers the test sets."""

    def __init__(self, answer: ExportResult = OK) -> None:
        self.answer = answer
        self.tried: list[object] = []
        self.taken: list[object] = []
        self.num_shutdowns = 0

    def export(self, batch: object) -> ExportResult:
        self.tried.append(batch)
        if self.answer.ok:
            self.taken.append(batch)
        return self.answer

    def shutdown(self) -> None:
        self.num_shutdowns += 1


class StuckBackend(Backend):
    """Never returns from an export until the test lets it, as a socket that does not answer."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Event()
        self.released = threading.Event()

    def export(self, batch: object) -> ExportResult:
        self.entered.set()
        self.released.wait(60)
        return super().export(batch)


def _worker(backend: Backend) -> tuple[ExportWorker[object], Hand]:
    clock = Hand()
    return ExportWorker("traces", backend, clock, Breaker(clock)), clock


def test_batches_go_out_in_order_and_are_counted() -> None:
    """What is submitted is exported oldest first."""
    backend = Backend()
    worker, _ = _worker(backend)
    assert all(worker.submit(name, 1) for name in "abc")
    worker.pump()
    assert backend.taken == ["a", "b", "c"]
    health = worker.health()
    assert (health.state, health.exports_ok, health.exports_failed) == ("ok", 3, 0)
    assert (health.items_dropped, health.last_error_type) == (0, None)


def test_full_queue_drops_its_oldest_and_counts_the_items() -> None:
    """Two batches too many cost the two oldest ones, item by item; the newest survive."""
    backend = Backend()
    worker, _ = _worker(backend)
    for number in range(MAX_BATCHES + 2):
        assert worker.submit(number, num_items=10 + number)
    worker.pump()
    assert backend.taken == list(range(2, MAX_BATCHES + 2))
    assert worker.dropped == {"queue_full": 10 + 11, "export_failed": 0, "shutdown": 0}


def test_batch_that_may_succeed_later_is_kept_and_one_that_cannot_is_dropped() -> None:
    """A 503 costs nothing but a second's wait; a 400 costs its own batch and not the next."""
    backend = Backend(LATER)
    worker, clock = _worker(backend)
    worker.submit("a", 3)
    worker.pump()
    worker.pump()  # too early: nothing happens
    assert backend.tried == ["a"]
    assert worker.health().state == "failing"
    backend.answer = NEVER
    clock.forward(1)
    worker.pump()
    assert worker.dropped["export_failed"] == 3
    backend.answer = OK
    worker.submit("b", 1)
    clock.forward(1)
    worker.pump()
    assert backend.taken == ["b"]
    assert worker.health().last_error_type == "http_400"
    assert worker.health().state == "ok"


def test_dead_backend_is_probed_rarely_and_its_recovery_is_noticed() -> None:
    """An hour of outage costs under 20 attempts; afterwards all that fitted goes out in order."""
    backend = Backend(LATER)
    worker, clock = _worker(backend)
    for second in range(3600):
        if second % 600 == 0:
            worker.submit(second, 1)
        worker.pump()
        clock.forward(1)
    assert len(backend.tried) < 20
    assert worker.health().state == "open"
    assert worker.health().exports_failed == len(backend.tried)
    backend.answer = OK
    for _ in range(300):
        worker.pump()
        clock.forward(1)
    assert backend.taken == [0, 600, 1200, 1800, 2400, 3000]
    assert worker.health().state == "ok"
    assert worker.health().items_dropped == 0


def test_outage_is_logged_once_then_every_five_minutes_with_a_count() -> None:
    """The first failure and the recovery get a line; between them one line per five minutes."""
    backend = Backend(LATER)
    worker, clock = _worker(backend)
    worker.submit("a", 1)
    with capture_events() as lines:
        for _ in range(1200):
            worker.pump()
            clock.forward(1)
        backend.answer = OK
        clock.forward(300)
        worker.pump()
    failures = [line for line in lines if line["event"] == "costlens.export.failed"]
    assert len(failures) == 1 + 1200 // 300 - 1
    assert failures[0]["num_failures"] == 1
    assert failures[0]["message"] == "c:4318: silent"
    assert sum(line["num_failures"] for line in failures) <= len(backend.tried) - 1
    assert failures[1]["num_failures"] > 1
    assert lines[-1]["event"] == "costlens.export.recovered"
    assert len(lines) == len(failures) + 1


def test_signals_that_fail_alike_share_a_line() -> None:
    """Three signals at one dead collector do not say the same thing three times."""
    workers = ExportWorkers({s: Backend(LATER) for s in ("traces", "metrics", "logs")})
    for signal in ("traces", "metrics", "logs"):
        workers.submit(signal, "batch", 1)
    with capture_events() as lines:
        workers.start()
        workers.close()
    assert [line["event"] for line in lines] == ["costlens.export.failed", "costlens.export.lost"]


@pytest.fixture
def stuck() -> Iterator[list[StuckBackend]]:
    """Return back-ends that hang; they are let go at the end."""
    backends = [StuckBackend() for _ in range(3)]
    yield backends
    for backend in backends:
        backend.released.set()


def test_close_sends_what_is_queued_and_ends_the_threads() -> None:
    """After close everything queued has arrived, the exporter is shut down, no thread is left."""
    backend = Backend()
    workers = ExportWorkers({"traces": backend})
    workers.start()
    (thread,) = [t for t in threading.enumerate() if t.name == "costlens-export-traces"]
    assert thread.daemon
    for number in range(20):
        workers.submit("traces", number, 1)
    health = workers.close()["traces"]
    assert backend.taken == list(range(20))
    assert (health.state, health.items_dropped) == ("stopped", 0)
    assert backend.num_shutdowns == 1
    thread.join(5)
    assert not thread.is_alive()


def test_close_gives_up_on_hung_backends_within_one_shared_deadline(
    stuck: list[StuckBackend],
) -> None:
    """Three hung signals cost one deadline together; all that was under way is counted as lost."""
    workers = ExportWorkers(dict(zip(("traces", "metrics", "logs"), stuck, strict=True)))
    workers.start()
    for signal, backend in zip(("traces", "metrics", "logs"), stuck, strict=True):
        workers.submit(signal, "in flight", 2)
        assert backend.entered.wait(10)
        workers.submit(signal, "queued", 3)
    start = time.monotonic()
    with capture_events() as lines:
        health = workers.close(deadline_s=1.5)
    took_s = time.monotonic() - start
    assert took_s < 2 * 1.5, "the deadline is not shared"
    assert {s: h.items_dropped for s, h in health.items()} == dict.fromkeys(health, 5)
    assert all(backend.num_shutdowns for backend in stuck), "the exporters were not told to stop"
    (line,) = lines
    assert line["event"] == "costlens.export.lost"
    assert line["num_items"] == {"traces": 5, "metrics": 5, "logs": 5}


def test_export_that_ends_after_it_was_given_up_changes_nothing(stuck: list[StuckBackend]) -> None:
    """A batch counted as lost is not counted again as sent."""
    workers = ExportWorkers({"traces": stuck[0]})
    workers.start()
    workers.submit("traces", "late", 1)
    assert stuck[0].entered.wait(10)
    before = workers.close(deadline_s=0)["traces"]
    stuck[0].released.set()
    for thread in threading.enumerate():
        if thread.name == "costlens-export-traces":
            thread.join(10)
    assert stuck[0].taken == ["late"]
    assert workers.health()["traces"] == before
    assert before.items_dropped == 1


def test_close_tries_a_dead_backend_once_and_counts_the_rest() -> None:
    """With the breaker open there is one last attempt, not one per batch."""
    backend = Backend(LATER)
    workers = ExportWorkers({"traces": backend})
    for number in range(10):
        workers.submit("traces", number, 1)
    workers.start()
    health = workers.close()["traces"]
    assert len(backend.tried) <= 2
    assert health.items_dropped == 10


def test_close_does_not_wait_for_the_next_probe() -> None:
    """A collector that came back between two probes gets everything at the end of the run."""
    backend = Backend(LATER)
    worker, clock = _worker(backend)
    for number in range(4):
        worker.submit(number, 1)
    for _ in range(5):
        worker.pump()
        clock.forward(1)
    assert worker.health().state == "open"
    backend.answer = OK
    worker.drain()
    worker.pump()
    assert backend.taken == [0, 1, 2, 3]


def test_late_and_unknown_batches_are_refused() -> None:
    """After close a batch is counted as lost; a signal that is not exported is refused quietly."""
    workers = ExportWorkers({"traces": Backend()})
    workers.start()
    workers.close()
    assert not workers.submit("traces", "late", 4)
    assert not workers.submit("logs", "no such signal", 4)
    assert workers.dropped() == {"traces": {"queue_full": 0, "export_failed": 0, "shutdown": 4}}
    assert "traces" in workers
    assert "logs" not in workers
    with capture_events() as lines:
        workers.close()
    assert lines == []


def test_close_before_start_counts_what_was_queued() -> None:
    """A run that fails while starting still says what it lost."""
    workers = ExportWorkers({"traces": Backend()})
    workers.submit("traces", "batch", 4)
    assert workers.close()["traces"].items_dropped == 4


def test_worker_thread_suppresses_instrumentation_of_its_own_calls() -> None:
    """An instrumented host sees the suppress key on the worker's thread, and only there."""
    from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, get_value

    seen: list[object] = []

    class Looking(Backend):
        def export(self, batch: object) -> ExportResult:
            seen.append(get_value(_SUPPRESS_INSTRUMENTATION_KEY))
            return OK

    workers = ExportWorkers({"traces": Looking()})
    workers.start()
    workers.submit("traces", "batch", 1)
    workers.close()
    assert seen == [True]
    assert get_value(_SUPPRESS_INSTRUMENTATION_KEY) is None


def test_fork_is_inert_even_if_the_lock_was_held() -> None:
    """C092: the child of a fork exports nothing, waits for nothing and starts nothing."""
    backend = Backend()
    workers = ExportWorkers({"traces": backend})
    workers.start()
    worker = workers._workers["traces"]
    held, forked = threading.Event(), threading.Event()

    def hold() -> None:  # the lock belongs to a thread that the child does not have
        with worker._wake:
            held.set()
            forked.wait(20)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons dislike what we test
        pid = os.fork()
        if pid == 0:
            submitted = workers.submit("traces", "child", 1)
            state = workers.close()["traces"].state
            num_threads = threading.active_count()
            os._exit(0 if (submitted, state, num_threads) == (False, "inert", 1) else 1)
    forked.set()
    holder.join()
    deadline = time.monotonic() + 20
    while (ended := os.waitpid(pid, os.WNOHANG)) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(pid, 9)
            pytest.fail("the child hangs")
        time.sleep(0.01)
    assert os.waitstatus_to_exitcode(ended[1]) == 0
    workers.submit("traces", "parent", 1)
    assert workers.close()["traces"].items_dropped == 0
    assert backend.taken == ["parent"]


def test_cpu_of_the_worker_is_measured() -> None:
    """What exporting costs is known, because our own overhead is part of the record."""

    class Busy(Backend):
        def export(self, batch: object) -> ExportResult:
            start_ns = time.thread_time_ns()
            while time.thread_time_ns() - start_ns < NS_PER_S // 50:
                pass
            return OK

    workers = ExportWorkers({"traces": Busy()})
    workers.start()
    workers.submit("traces", "batch", 1)
    workers.close(deadline_s=30)
    assert workers.cpu_s >= 0.02
