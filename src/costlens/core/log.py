"""The log of costlens: structlog events on standard error, with the run, rank and step of each.

It is a logger of its own: neither the root logger nor structlog's global configuration is touched.
A :class:`RunContext` says whose a line is; ``taps`` get every event as a dictionary before it is
rendered.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, MutableMapping
from typing import Any, TextIO

import structlog

from costlens.core.guard import faults

__all__ = ["Event", "Logger", "RunContext", "configure_log", "log", "taps"]

Event = MutableMapping[str, Any]

Logger = structlog.typing.FilteringBoundLogger

taps: list[Callable[[Event], None]] = []
"""Called with a copy of every event, after the context was added and before it is rendered."""

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
_state: dict[str, Any] = {"level": 20, "format": "auto"}

# The key under which an event carries the context of its run until the taps have seen it.
_RUN = "_run"

# Machines read these; a person at a terminal knows them already.
_NOT_FOR_PEOPLE = ("host_name", "job_id", "run_id", "attempt", "trace_id", "span_id")

# The default formatter of tracebacks prints local variables, which may be secrets.
_CONSOLE = {
    has_colors: structlog.dev.ConsoleRenderer(
        colors=has_colors, exception_formatter=structlog.dev.plain_traceback
    )
    for has_colors in (False, True)
}
_JSON = structlog.processors.JSONRenderer(default=str)


class _Stderr:
    """Writes whole lines to ``sys.stderr`` as it is then (tests and notebooks replace it)."""

    def msg(self, line: str) -> None:
        stream: TextIO | None = sys.stderr
        if stream is None:
            return
        try:
            stream.write(line + "\n")
            stream.flush()
        # Closed, full, a broken pipe, or a signal handler in the middle of another write: there is
        # nowhere to say so.
        except (OSError, ValueError, RuntimeError):
            pass

    log = debug = info = warning = warn = error = critical = fatal = failure = exception = msg


class RunContext:
    """What the log says of one run, between ``open`` and ``close``.

    Lines written with ``log`` name their run always. Lines that are nobody's, such as those of
    contained faults and of export workers, are taken for the run's while no other one is open.

    Attributes:
        fields: Fields of every line where they are not None, such as ``run_id`` and ``rank``.
        sources: Fields whose value is asked for at each event, such as ``step``; any thread.
        taps: Called with a copy of each event of the run, and of each that is nobody's.
        log: The logger of the run.
    """

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        self.sources: dict[str, Callable[[], Any]] = {}
        self.taps: list[Callable[[Event], None]] = []
        self.log: Logger = log.bind(**{_RUN: self})

    def open(self) -> None:
        """Count as an open run from now on; twice is once."""
        if self not in _open:
            _open.append(self)

    def close(self) -> None:
        """Count as open no longer; nothing of the run is held by the log."""
        _open[:] = [known for known in _open if known is not self]


_open: list[RunContext] = []


def _filter_level(_logger: object, method: str, event: Event) -> Event:
    if _LEVELS.get(method, 20) < _state["level"]:
        raise structlog.DropEvent
    return event


# Copies, because another thread may be adding a field or a tap.
def _add_context(_logger: object, _method: str, event: Event) -> Event:
    live = _open.copy()
    run: RunContext | None = event.get(_RUN) or (live[0] if len(live) == 1 else None)
    if run is None:
        return event
    event[_RUN] = run
    for name, value in run.fields.copy().items():
        if value is not None:
            event.setdefault(name, value)
    for name, source in run.sources.copy().items():
        if name not in event and (value := faults.call("log.context", source)) is not None:
            event[name] = value
    return event


def _tap(_logger: object, _method: str, event: Event) -> Event:
    run: RunContext | None = event.pop(_RUN, None)
    listeners = taps.copy()
    for each in _open.copy() if run is None else [run]:
        listeners += each.taps
    # Taps export, and an exception's text may hold anything.
    told = {name: value for name, value in event.items() if name != "exc_info"}
    for tap in listeners:
        faults.call("log.tap", tap, told.copy())
    return event


def _is_terminal() -> bool:
    try:
        return sys.stderr is not None and sys.stderr.isatty()
    except (AttributeError, ValueError):  # a stand-in, or closed
        return False


def _render(logger: object, method: str, event: Event) -> str:
    if _state["level"] > _LEVELS["debug"]:
        event.pop("exc_info", None)
    is_terminal = _is_terminal()
    if _state["format"] == "console" or (_state["format"] == "auto" and is_terminal):
        for name in _NOT_FOR_PEOPLE:
            event.pop(name, None)
        if isinstance(event.get("stack"), list):
            event["stack"] = "\n".join(event["stack"])  # the renderer takes text alone
        return _CONSOLE[is_terminal](logger, method, event)
    return str(_JSON(logger, method, structlog.processors.format_exc_info(logger, method, event)))


def configure_log(level: str, log_format: str) -> None:
    """Set the least severe level written (debug … error) and the format (auto, json, console).

    Tracebacks, which hold the texts of exceptions, are written at ``debug`` only.
    """
    _state["level"] = _LEVELS[level]
    _state["format"] = log_format


log: Logger = structlog.wrap_logger(
    _Stderr(),
    processors=[
        _filter_level,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _add_context,
        _tap,
        _render,
    ],
    wrapper_class=structlog.BoundLogger,
    context_class=dict,
    cache_logger_on_first_use=False,
)
"""The logger: ``log.info("costlens.noun.verb", field=value)``."""
