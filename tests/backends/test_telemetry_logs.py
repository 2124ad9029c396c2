"""Log events over real exporters at a real receiver, and what must never come of them."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator

import pytest

from costlens.config import Config
from costlens.core import log as core_log
from costlens.core.log import RunContext
from costlens.export.otel_endpoint import build_exporters, read_settings
from costlens.export.otel_logs import LogsExporter
from costlens.export.otel_worker import ExportWorkers
from costlens.run import Run
from tests.fixtures_otlp import OtlpReceiver
from tests.unit.export.rehearsal import Rehearsal

Build = Callable[[], tuple[LogsExporter, ExportWorkers]]


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> Iterator[Build]:
    """Return `build()`: an exporter of log events with the workers the environment asks for."""
    monkeypatch.setitem(core_log._state, "level", 20)
    context = RunContext()
    context.fields.update(run_id="run-a", rank=0)
    context.open()
    built: list[tuple[LogsExporter, ExportWorkers]] = []

    def make() -> tuple[LogsExporter, ExportWorkers]:
        workers = ExportWorkers(build_exporters(read_settings()))
        workers.start()
        built.append((LogsExporter(workers, context), workers))
        return built[-1]

    yield make
    for exporter, workers in built:
        exporter.finish(0)
        workers.close(0.0)
    context.close()


def test_an_event_arrives(
    otlp_receiver: OtlpReceiver, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event arrives with its name, severity, run and rank, where logs were asked for."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", otlp_receiver.endpoint)
    monkeypatch.setenv("OTEL_LOGS_EXPORTER", "otlp")
    exporter, workers = build()
    core_log.log.warning("costlens.test", message="hello", step=7)
    exporter.export(Rehearsal().look())
    workers.close(10.0)
    (found,) = otlp_receiver.logs()
    assert found.proto.event_name == "costlens.test"
    assert found.proto.body.string_value == "hello"
    assert found.proto.severity_number == 13
    assert found.attributes == {"costlens.run.id": "run-a", "costlens.rank": 0, "costlens.step": 7}
    assert found.resource["service.instance.id"] == "run-a/1/0"


def test_a_dead_collector_makes_no_loop(
    build: Build, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """C102: with the root logger at DEBUG and the collector down, one line is one record.

    The failures of its export bring in no further records, and the line still reaches the console.
    """
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        monkeypatch.setenv(
            "OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{nobody.getsockname()[1]}"
        )
        monkeypatch.setenv("OTEL_LOGS_EXPORTER", "otlp")
        root = logging.getLogger()
        level = root.level
        root.setLevel(logging.DEBUG)
        try:
            exporter, workers = build()
            core_log.log.warning("costlens.test")
            run = Rehearsal()
            num_records = []
            for _ in range(5):
                exporter.export(run.look())
                num_records.append(len(exporter._events))
            health = workers.close(1.0)["logs"]
        finally:
            root.setLevel(level)
    assert "costlens.test" in capsys.readouterr().err
    assert max(num_records) <= 1  # at most the one line that says that exports fail
    assert health.exports_ok == 0
    assert 1 <= health.items_dropped <= 2


def test_the_standard_switch_turns_logs_off(
    otlp_receiver: OtlpReceiver, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C103: under OTEL_SDK_DISABLED=true logging neither recurses nor touches the network."""
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", otlp_receiver.endpoint)
    monkeypatch.setenv("OTEL_LOGS_EXPORTER", "otlp")
    exporter, workers = build()
    run = Rehearsal()
    for number in range(5):
        core_log.log.warning("costlens.test", number=number)
        exporter.export(run.look())
    assert workers.close(1.0) == {}
    assert otlp_receiver.requests == []


def test_two_runs_in_one_process_send_their_own_lines(
    otlp_receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C126: what a run logs leaves as that run's alone, with its ids and in its own trace."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", otlp_receiver.endpoint)
    monkeypatch.setenv("OTEL_LOGS_EXPORTER", "otlp")
    runs = [Run(Config(name=name, summary=False)).open() for name in ("first", "second")]
    for run in runs:
        with run.iteration() as iteration:
            iteration.log(loss=float("nan"))
    ids = [run.id for run in runs]
    for run in runs:
        run.finish()
    found = {each.resource["service.instance.id"]: each for each in otlp_receiver.logs()}
    assert len(otlp_receiver.logs()) == 2
    assert {name.partition("/")[0] for name in found} == set(ids)
    traces = {span.proto.trace_id for span in otlp_receiver.spans()}
    for name, each in found.items():
        assert each.proto.event_name == "costlens.nonfinite"
        assert each.attributes["costlens.run.id"] == name.partition("/")[0]
        assert each.proto.trace_id in traces
    assert len({each.proto.trace_id for each in found.values()}) == 2
