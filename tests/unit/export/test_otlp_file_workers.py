"""Workers that send and file: every batch goes both ways, and neither can hold up the other."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from costlens.errors import StorageError
from costlens.export.otel_file import FILES, TelemetryWorkers
from costlens.export.otel_lines import decode_line
from costlens.export.otel_port import ExportResult
from costlens.export.otel_settings import ExportSettings, parse_settings
from costlens.export.otlp_file import SegmentWriter, wants_files
from costlens.storage.identity import Identity
from costlens.storage.run_folder import RunFolder
from costlens.storage.segments import split_lines
from costlens.storage.store import Store
from tests.backends.otlp_batches import batch_of, logs

SIGNALS = ("traces", "metrics", "logs")


class Backend:
    """A port that remembers what it got."""

    def __init__(self) -> None:
        self.batches: list[Any] = []

    def export(self, batch: Any) -> ExportResult:
        """Take a batch."""
        self.batches.append(batch)
        return ExportResult(ok=True)

    def shutdown(self) -> None:
        """Do nothing."""


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> RunFolder:
    return RunFolder(Store(tmp_path), "run")


@pytest.fixture(name="writer")
def _writer(folder: RunFolder) -> SegmentWriter:
    return SegmentWriter(lambda: Identity("run", 1, "key", folder), 0, max_bytes=1024 * 1024)


@pytest.fixture(name="workers")
def _workers(writer: SegmentWriter) -> Iterator[TelemetryWorkers]:
    workers = TelemetryWorkers({}, writer)
    workers.start()
    yield workers
    workers.close(0.0)


def filed(folder: RunFolder) -> dict[str, list[Any]]:
    """Return the requests of all closed segments by signal."""
    found: dict[str, list[Any]] = {}
    for segment in sorted(folder.telemetry.list().closed):
        for line in split_lines(folder.telemetry.read(segment) or b""):
            found.setdefault(segment.signal, []).append(decode_line(segment.signal, line))
    return found


def test_what_is_submitted_is_filed(folder: RunFolder, workers: TelemetryWorkers) -> None:
    """Without a back-end all signals are kept; when the run ends all segments are closed."""
    assert all(signal in workers for signal in SIGNALS)
    for signal in SIGNALS:
        assert workers.submit(signal, batch_of(signal), 1)
    health = workers.close(10.0)
    assert {signal: len(requests) for signal, requests in filed(folder).items()} == {
        "traces": 1,
        "metrics": 1,
        "logs": 1,
    }
    assert folder.telemetry.list().open == frozenset()
    assert set(health) == {FILES}
    assert (health[FILES].exports_failed, health[FILES].items_dropped) == (0, 0)


def test_batches_go_both_ways(folder: RunFolder, writer: SegmentWriter) -> None:
    """With a back-end for one signal, that one is sent and filed, the others are filed."""
    backend = Backend()
    workers = TelemetryWorkers({"traces": backend}, writer)
    workers.start()
    batches = {signal: batch_of(signal) for signal in SIGNALS}
    for signal, batch in batches.items():
        workers.submit(signal, batch, 1)
    health = workers.close(10.0)
    assert backend.batches == [batches["traces"]]
    assert set(filed(folder)) == set(SIGNALS)
    assert set(health) == {"traces", FILES}


def test_without_files_only_what_has_a_backend_is_taken() -> None:
    """It is then what the workers of a run were before."""
    backend = Backend()
    workers = TelemetryWorkers({"traces": backend})
    workers.start()
    assert ("traces" in workers, "metrics" in workers) == (True, False)
    assert workers.submit("traces", batch_of("traces"), 1)
    assert not workers.submit("metrics", batch_of("metrics"), 1)
    assert set(workers.close(10.0)) == {"traces"}
    assert len(backend.batches) == 1


def test_a_full_disk_is_told_and_survived(
    folder: RunFolder, workers: TelemetryWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be written is counted with the reason, when the run ends at the latest."""

    def refuse(*_args: object, **_options: object) -> bool:
        error = StorageError("no space")
        error.errno = errno.ENOSPC
        raise error

    monkeypatch.setattr(Store, "create", refuse)
    workers.submit("logs", logs("x" * 2_000_000), 1)  # a segment that is over
    workers.submit("logs", logs("y"), 4)
    health = workers.close(10.0)[FILES]
    assert health.last_error_type == "ENOSPC"
    assert health.exports_failed >= 1
    assert health.items_dropped == 4 + 1  # the batch that waited, and the record held in memory
    assert filed(folder) == {}


def test_what_the_limit_deletes_is_counted(
    folder: RunFolder, writer: SegmentWriter, workers: TelemetryWorkers
) -> None:
    """Items in segments that had to go are dropped items of the files."""
    for _ in range(3):
        workers.submit("logs", logs("x" * 600_000), 1)
    health = workers.close(10.0)[FILES]
    assert health.items_dropped == 2
    assert len(filed(folder)["logs"]) == 1
    again = TelemetryWorkers({}, writer)
    assert again.health()[FILES].items_dropped == 0  # each opening counts its own


def test_a_hanging_run_folder_does_not_hold_up_the_end(
    workers: TelemetryWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing keeps to its deadline while a write hangs, and counts what hangs as lost."""
    go_on, hangs = threading.Event(), threading.Event()

    def hang(*_args: object, **_options: object) -> bool:
        hangs.set()
        go_on.wait(60.0)
        return True

    monkeypatch.setattr(Store, "create", hang)
    workers.submit("logs", logs("x" * 2_000_000), 1)
    workers.submit("logs", logs("y"), 1)
    assert hangs.wait(10.0)
    start_s = time.monotonic()
    health = workers.close(0.5)[FILES]
    took_s = time.monotonic() - start_s
    go_on.set()
    assert took_s < 10.0  # a busy machine may need a while, but not the minute
    assert health.items_dropped == 2


@pytest.mark.parametrize(
    ("environ", "asked", "expected"),
    [
        ({}, None, True),
        ({}, False, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:4318"}, None, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:4318"}, True, True),
        ({"OTEL_LOGS_EXPORTER": "otlp"}, None, False),
        ({"OTEL_TRACES_EXPORTER": "none"}, None, True),
        ({"OTEL_SDK_DISABLED": "true"}, None, False),
        ({"OTEL_SDK_DISABLED": "true"}, True, True),
    ],
)
def test_files_are_kept_where_nothing_is_sent(
    environ: dict[str, str], asked: bool | None, expected: bool
) -> None:
    """Files stand in for an endpoint; the setting decides both ways, a disabled SDK against."""
    settings = parse_settings(environ)
    assert isinstance(settings, ExportSettings)
    assert wants_files(settings, asked=asked) is expected
