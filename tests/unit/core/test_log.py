"""The log of costlens: its own, bounded to standard error, harmless."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import pytest
import structlog

from costlens.core.guard import Faults
from costlens.core.log import RunContext, configure_log, log, taps


class Terminal(io.StringIO):
    """A standard error that a person reads."""

    def isatty(self) -> bool:
        """Return true."""
        return True


def read(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Return the events on standard error; nothing else may stand there, nor on standard output."""
    captured = capsys.readouterr()
    assert captured.out == ""
    return [json.loads(line) for line in captured.err.splitlines()]


def opened(**fields: object) -> RunContext:
    """Return an open run in the log."""
    context = RunContext()
    context.fields.update(fields)
    context.open()
    return context


def test_an_event_is_one_json_line_with_its_context(capsys: pytest.CaptureFixture[str]) -> None:
    """Fields, run, rank and step stand in the line; what is not known does not."""
    context = opened(run_id="r-1", rank=3, job_id=None)
    context.sources["step"] = lambda: 12
    context.sources["trace_id"] = lambda: None
    log.info("costlens.run.start", world_size=8, message="zwei\nZeilen")
    (line,) = read(capsys)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "costlens.run.start",
        "level": "info",
        "run_id": "r-1",
        "rank": 3,
        "step": 12,
        "world_size": 8,
        "message": "zwei\nZeilen",
    }


def test_a_field_of_the_event_wins_over_the_context(capsys: pytest.CaptureFixture[str]) -> None:
    """An event about iteration 4 says so, whatever the run is at by now."""
    opened().sources["iteration"] = lambda: 12
    log.error("costlens.nonfinite", iteration=4)
    assert read(capsys)[0]["iteration"] == 4


@pytest.mark.parametrize(
    ("level", "num_written"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)]
)
def test_the_level_filters(
    level: str, num_written: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is less severe is not written and reaches no tap."""
    seen: list[object] = []
    taps.append(seen.append)
    configure_log(level, "json")
    for method in ("debug", "info", "warning", "error"):
        getattr(log, method)("costlens.event")
    assert len(read(capsys)) == len(seen) == num_written


def test_neither_the_root_logger_nor_structlog_is_touched(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """C102: events reach no handler of the application, and its structlog keeps its ways."""
    handlers = logging.getLogger().handlers.copy()
    with caplog.at_level(logging.DEBUG):
        log.warning("costlens.event")
    assert caplog.records == []
    assert logging.getLogger().handlers == handlers
    assert not structlog.is_configured()
    assert len(read(capsys)) == 1


def test_the_application_may_configure_structlog_as_it_likes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Our lines do not change with the host's processors."""
    structlog.configure(
        processors=[lambda *_: "theirs"],
        context_class=lambda *_: 1 / 0,  # type: ignore[arg-type]
    )
    try:
        log.info("costlens.event")
    finally:
        structlog.reset_defaults()
    assert read(capsys)[0]["event"] == "costlens.event"


def test_people_get_a_short_line_and_machines_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal the context that never changes is left out; `json` there is JSON."""
    opened(run_id="r-1", rank=3)
    for log_format, is_json in (("auto", False), ("console", False), ("json", True)):
        terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        configure_log("info", log_format)
        log.info("costlens.event", size=5)
        line = terminal.getvalue()
        assert line.count("\n") == 1
        assert line.startswith("{") is is_json
        assert ("r-1" in line) is is_json
        assert "costlens.event" in line


def test_console_lines_in_a_file_have_no_colours(capsys: pytest.CaptureFixture[str]) -> None:
    """`console` asked for in a pipe is plain text."""
    configure_log("info", "console")
    log.info("costlens.event", size=5)
    line = capsys.readouterr().err
    assert "size=5" in line
    assert "\x1b" not in line


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_traceback_shows_no_local_variables(
    log_format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Local variables may be secrets; the lines of the traceback are not."""
    configure_log("debug", log_format)

    def connect(token: str) -> None:
        raise OSError("refused")

    try:
        connect("s3cr" + "et")
    except OSError as error:
        log.warning("costlens.event", exc_info=error)
    text = capsys.readouterr().err
    assert "OSError: refused" in text
    assert "s3cret" not in text


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_the_text_of_an_exception_is_for_who_debugs(
    log_format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may hold data: it is written at the level debug only, and no tap ever gets it."""
    seen: list[MutableMapping[str, Any]] = []
    taps.append(seen.append)
    for level, is_written in (("info", False), ("debug", True)):
        configure_log(level, log_format)
        log.warning("costlens.event", exc_info=ValueError("row 7 of the data"))
        assert ("row 7 of the data" in capsys.readouterr().err) is is_written
    assert [event["event"] for event in seen] == ["costlens.event"] * 2
    assert "row 7" not in str(seen)
    assert not any("exc_info" in event for event in seen)


def test_people_get_a_stack_as_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """A list of code locations is readable on a terminal and a list in JSON."""
    stack = ["app/train.py:7 count", "app/train.py:9 main"]
    configure_log("info", "console")
    log.warning("costlens.event", stack=stack)
    assert "\n".join(stack) in capsys.readouterr().err
    configure_log("info", "json")
    log.warning("costlens.event", stack=stack)
    assert read(capsys)[0]["stack"] == stack


def test_a_line_names_the_run_that_wrote_it(capsys: pytest.CaptureFixture[str]) -> None:
    """C126: two open runs keep their own ids; what is nobody's names neither of them.

    With one run open it can only be about that one, and with none about no run.
    """
    first, second = opened(run_id="r-1"), opened(run_id="r-2")
    for each in (first.log, second.log, log):
        each.info("costlens.event")
    second.close()
    log.info("costlens.event")
    first.close()
    log.info("costlens.event")
    assert [line.get("run_id") for line in read(capsys)] == ["r-1", "r-2", None, "r-1", None]


def test_the_taps_of_a_run_see_that_run_alone() -> None:
    """A tap of a run gets its events and nobody's; a tap of the log gets all."""
    first, second = opened(run_id="r-1"), opened(run_id="r-2")
    seen: list[list[object]] = [[], [], []]
    for listeners, kept in zip((first.taps, second.taps, taps), seen, strict=True):
        listeners.append(lambda event, kept=kept: kept.append(event["event"]))  # type: ignore[misc]
    first.log.info("first")
    second.log.info("second")
    log.info("nobody")
    assert seen == [["first", "nobody"], ["second", "nobody"], ["first", "second", "nobody"]]


def test_a_tap_gets_a_copy_of_every_event(capsys: pytest.CaptureFixture[str]) -> None:
    """A tap may keep what it gets, and change it, without changing the line or other taps."""
    opened(run_id="r-1")
    kept: list[MutableMapping[str, Any]] = []
    taps.extend([lambda event: event.clear(), kept.append])
    configure_log("info", "console")
    log.info("costlens.event", size=5)
    assert kept[0]["event"] == "costlens.event"
    assert kept[0]["run_id"] == "r-1"
    assert "size=5" in capsys.readouterr().err


def test_a_tap_or_source_that_fails_harms_nobody(
    contained: Faults, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line is written, the fault is counted and said once; nothing recurses."""

    def fail(*_: object) -> None:
        raise RuntimeError

    taps.append(fail)
    opened().sources["step"] = fail
    for _ in range(3):
        log.info("costlens.event")
    names = [line["event"] for line in read(capsys)]
    assert names.count("costlens.event") == 3
    assert names.count("costlens.fault") == 2
    assert set(contained.counts) == {"log.tap", "log.context"}


@pytest.mark.parametrize("kind", ["closed", "full", "missing"])
def test_a_standard_error_that_is_gone_is_no_fault(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon without a terminal, a closed stream and a full disk stop no training."""

    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    streams: dict[str, io.StringIO | None] = {
        "closed": io.StringIO(), "full": Full(), "missing": None
    }  # fmt: skip
    stream = streams[kind]
    if kind == "closed" and stream is not None:
        stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    for log_format in ("auto", "json", "console"):
        configure_log("info", log_format)
        log.info("costlens.event")


def test_what_json_does_not_know_is_written_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    """An odd value makes an odd field, not an exception."""
    log.info("costlens.event", value={1, 2}.__class__)
    assert read(capsys)[0]["value"] == "<class 'set'>"
