"""The log of costlens: structlog events on standard error, with the run, rank and step of each.

It is a logger of its own: neither the root logger nor structlog's global configuration is touched.
``taps`` get every event as a dictionary before it is rendered; ``export/otel_logs.py`` is one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, MutableMapping
from typing import Any, TextIO

import structlog

from costlens.core.guard import faults

__all__ = ["configure_log", "context", "context_sources", "log", "taps"]

Event = MutableMapping[str, Any]

context: dict[str, Any] = {}
"""Fields of every line where they are not None: run id, rank, attempt, host; run.py keeps it."""

context_sources: dict[str, Callable[[], Any]] = {}
"""Fields whose value is asked for at each event, such as ``step``."""

taps: list[Callable[[Event], None]] = []
"""Called with a copy of every event, after the context was added and before it is rendered."""

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
_state: dict[str, Any] = {"level": 20, "format": "auto"}

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


def _filter_level(_logger: object, method: str, event: Event) -> Event:
    if _LEVELS.get(method, 20) < _state["level"]:
        raise structlog.DropEvent
    return event


# Copies, because another thread may be adding a field or a tap.
def _add_context(_logger: object, _method: str, event: Event) -> Event:
    for name, value in context.copy().items():
        if value is not None:
            event.setdefault(name, value)
    for name, source in context_sources.copy().items():
        event.setdefault(name, faults.call("log.context", source))
    return event


def _tap(_logger: object, _method: str, event: Event) -> Event:
    for tap in taps.copy():
        faults.call("log.tap", tap, dict(event))
    return event


def _is_terminal() -> bool:
    try:
        return sys.stderr is not None and sys.stderr.isatty()
    except (AttributeError, ValueError):  # a stand-in, or closed
        return False


def _render(logger: object, method: str, event: Event) -> str:
    is_terminal = _is_terminal()
    if _state["format"] == "console" or (_state["format"] == "auto" and is_terminal):
        for name in _NOT_FOR_PEOPLE:
            event.pop(name, None)
        return _CONSOLE[is_terminal](logger, method, event)
    return str(_JSON(logger, method, structlog.processors.format_exc_info(logger, method, event)))


def configure_log(level: str, log_format: str) -> None:
    """Set the least severe level written (debug … error) and the format (auto, json, console)."""
    _state["level"] = _LEVELS[level]
    _state["format"] = log_format


log: structlog.typing.FilteringBoundLogger = structlog.wrap_logger(
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
