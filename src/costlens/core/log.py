"""The log of costlens: structlog events on standard error, each with the run, the rank and the step it belongs to.

It is a logger of its own: neither the root logger nor structlog's global configuration is touched.
``taps`` get every event as a dictionary before it is rendered; ``export/otel_logs.py`` is one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, MutableMapping
from typing import Any, TextIO

import structlog

__all__ = ["configure_log", "context", "log", "taps"]

Event = MutableMapping[str, Any]

context: dict[str, Any] = {}
"""Fields of every line: ``run_id``, ``rank``, ``attempt``, ``host_name``, ``job_id``, where they are known; run.py keeps it."""

context_sources: dict[str, Callable[[], Any]] = {}
"""Fields whose value is asked for at each event, such as ``step``."""

taps: list[Callable[[Event], None]] = []
"""Called with every event, after the context was added and before it is rendered."""

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
_state: dict[str, Any] = {"level": 20, "format": "auto"}


class _Stderr:
    """Writes whole lines to whatever ``sys.stderr`` is at that moment (tests and notebooks replace it)."""

    def msg(self, line: str) -> None:
        stream: TextIO | None = sys.stderr
        if stream is not None:
            stream.write(line + "\n")
            stream.flush()

    log = debug = info = warning = warn = error = critical = fatal = failure = exception = msg


def _filter_level(_logger: object, method: str, event: Event) -> Event:
    if _LEVELS.get(method, 20) < _state["level"]:
        raise structlog.DropEvent
    return event


def _add_context(_logger: object, _method: str, event: Event) -> Event:
    for name, value in context.items():
        event.setdefault(name, value)
    for name, source in context_sources.items():
        event.setdefault(name, source())
    return event


def _tap(_logger: object, _method: str, event: Event) -> Event:
    for tap in list(taps):
        tap(event)
    return event


def _render(logger: Any, method: str, event: Event) -> str:
    is_terminal = getattr(sys.stderr, "isatty", lambda: False)()
    if _state["format"] == "console" or (_state["format"] == "auto" and is_terminal):
        for name in ("host_name", "job_id", "run_id", "attempt", "trace_id", "span_id"):
            event.pop(name, None)
        renderer = structlog.dev.ConsoleRenderer(colors=is_terminal)
        return renderer(logger, method, event)
    formatted = structlog.processors.format_exc_info(logger, method, event)
    return str(structlog.processors.JSONRenderer(default=str)(logger, method, formatted))


def configure_log(level: str, log_format: str) -> None:
    """Set the least severe level written (debug … error) and the format (auto, json, console)."""
    _state["level"] = _LEVELS[level]
    _state["format"] = log_format


log: Any = structlog.wrap_logger(
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
    cache_logger_on_first_use=False,
)
