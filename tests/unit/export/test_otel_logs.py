"""Log events of costlens as OTLP log records."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry._logs import SeverityNumber
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk.trace import TracerProvider

from costlens.core import log as core_log
from costlens.core.log import RunContext
from costlens.export.otel_logs import LogsExporter
from tests.unit.export.rehearsal import WALL_NS, Outbox, Rehearsal


class Logs:
    """A logs exporter, and what it handed over."""

    def __init__(self) -> None:
        self.run = Rehearsal()
        self.outbox = Outbox()
        self.context = RunContext()
        self.log = self.context.log
        self.exporter = LogsExporter(self.outbox, self.context, wall_clock=lambda: WALL_NS)  # type: ignore[arg-type]

    def export(self) -> list[ReadableLogRecord]:
        """Export a window and return its records."""
        before = len(self.outbox.batches)
        self.exporter.export(self.run.look())
        found: list[ReadableLogRecord] = []
        for signal, batch, num_items in self.outbox.batches[before:]:
            assert signal == "logs"
            assert isinstance(batch, list)
            assert len(batch) == num_items <= 64
            found += batch
        return found


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Logs]:
    """Return an exporter that listens, and make it stop afterwards."""
    monkeypatch.setitem(core_log._state, "level", 20)
    logs = Logs()
    yield logs
    logs.exporter.finish(0)


def test_an_event_becomes_a_record(logs: Logs, capsys: pytest.CaptureFixture[str]) -> None:
    """An event arrives as a record, and its line still reaches the console.

    Name, level, message, context and fields stand under OpenTelemetry's names.
    """
    logs.context.fields.update(run_id="run-a", rank=3, attempt=2, host_name="node-3")
    logs.context.sources["step"] = lambda: 7
    logs.log.error("costlens.nonfinite", metric="loss", iteration=28, message="not a number")
    (found,) = logs.export()
    record = found.log_record
    assert record.event_name == "costlens.nonfinite"
    assert record.body == "not a number"
    assert (record.severity_text, record.severity_number) == ("ERROR", SeverityNumber.ERROR)
    assert record.timestamp == WALL_NS
    assert dict(record.attributes or {}) == {
        "costlens.run.id": "run-a",
        "costlens.rank": 3,
        "costlens.attempt": 2,
        "costlens.step": 7,
        "costlens.iteration": 28,
        "costlens.metric": "loss",
        "host.name": "node-3",
    }
    assert found.resource.attributes["service.instance.id"] == "run-a/1/0"
    assert "costlens.nonfinite" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("level", "number"),
    [("debug", 5), ("info", 9), ("warning", 13), ("error", 17), ("critical", 21)],
)
def test_levels_become_severities(logs: Logs, level: str, number: int) -> None:
    """Each level of the log is the severity number that its name has in OpenTelemetry."""
    logs.exporter.take({"event": "x", "level": level})
    (found,) = logs.export()
    assert found.log_record.severity_number is not None
    assert found.log_record.severity_number.value == number


def test_a_record_belongs_to_the_span_its_event_names(logs: Logs) -> None:
    """Trace and span id of the event become the record's.

    Without them it has none, even while the host application has a span open.
    """
    logs.exporter.take(
        {
            "event": "a",
            "trace_id": "0af7651916cd43dd8448eb211c80319c",
            "span_id": "b7ad6b7169203331",
        }
    )
    logs.exporter.take({"event": "b", "trace_id": "rubbish", "span_id": None})
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("host")
    with tracer.start_as_current_span("host"):
        named, nameless = logs.export()
    assert named.log_record.trace_id == 0x0AF7651916CD43DD8448EB211C80319C
    assert named.log_record.span_id == 0xB7AD6B7169203331
    assert named.log_record.trace_flags == 1
    assert (nameless.log_record.trace_id, nameless.log_record.span_id) == (0, 0)


def test_only_plain_values_are_kept(logs: Logs) -> None:
    """An exception in an event is not kept.

    Its frames would keep tensors alive, and its text is for the console.
    """
    error = ValueError("https://user:hunter2@host/")
    logs.exporter.take(
        {
            "event": "costlens.fault",
            "exc_info": error,
            "place": "pipeline.drain",
            "error_type": "ValueError",
            "stack": ["app/train.py:7 count", "app/train.py:9 main"],
        }
    )
    (found,) = logs.export()
    assert dict(found.log_record.attributes or {}) == {
        "costlens.place": "pipeline.drain",
        "costlens.stack": ("app/train.py:7 count", "app/train.py:9 main"),
        "error.type": "ValueError",
    }


def test_other_loggers_stay_outside(logs: Logs) -> None:
    """C102.

    With the root logger at DEBUG no line of another library comes in, and no handler of ours is
    attached anywhere.
    """
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    root.setLevel(logging.DEBUG)
    try:
        logging.getLogger("urllib3").debug("retrying")
        logging.getLogger("opentelemetry.exporter").error("export failed")
        assert logs.export() == []
        assert root.handlers == before
    finally:
        root.setLevel(level)


def test_a_flood_is_bounded_and_counted(logs: Logs) -> None:
    """Of 1500 events in a window the newest 1000 are exported, in batches of 64.

    One more record says how many were not.
    """
    for number in range(1500):
        logs.exporter.take({"event": "x", "number": number})
    found = logs.export()
    assert len(found) == 1001
    assert (found[0].log_record.attributes or {})["costlens.number"] == 500
    assert found[-1].log_record.event_name == "costlens.log.dropped"
    assert (found[-1].log_record.attributes or {})["costlens.num_events"] == 500
    assert logs.export() == []


def test_events_before_the_start_are_kept_and_after_the_end_are_not(logs: Logs) -> None:
    """What is logged between building and starting an exporter is exported when it starts.

    After it finished nothing is, until it starts again.
    """
    logs.log.warning("costlens.early")
    logs.exporter.start(logs.run.look(opens=True))
    (signal, batch, _) = logs.outbox.batches[0]
    found: Any = batch
    assert (signal, found[0].log_record.event_name) == ("logs", "costlens.early")
    logs.exporter.finish(0)
    logs.log.warning("costlens.late")
    assert logs.export() == []
    logs.exporter.start(logs.run.look(opens=True))
    logs.log.warning("costlens.again")
    assert [found.log_record.event_name for found in logs.export()] == ["costlens.again"]


def test_an_exporter_takes_the_events_of_its_own_run_and_those_that_are_nobodys(logs: Logs) -> None:
    """C126.

    With two runs in a process, a run's logs hold nothing of the other's. What cannot be told, such
    as a contained fault, is in both, and names neither.
    """
    other = Logs()
    for each, run_id in ((logs, "run-a"), (other, "run-b")):
        each.context.fields["run_id"] = run_id
        each.context.open()
    try:
        logs.log.warning("costlens.mine")
        other.log.warning("costlens.theirs")
        core_log.log.warning("costlens.nobodys")
    finally:
        for each in (logs, other):
            each.context.close()
    for each, own in ((logs, ("costlens.mine", "run-a")), (other, ("costlens.theirs", "run-b"))):
        found = [
            (
                record.log_record.event_name,
                (record.log_record.attributes or {}).get("costlens.run.id"),
            )
            for record in each.export()
        ]
        assert found == [own, ("costlens.nobodys", None)]
    other.exporter.finish(0)
