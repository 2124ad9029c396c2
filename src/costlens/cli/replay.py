"""``costlens replay``: sends the telemetry files of a run to an endpoint, each line once."""

from __future__ import annotations

import time
from collections.abc import Collection
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from costlens.cli.options import Directory, load_config
from costlens.cli.progress import progress
from costlens.errors import RecordError

if TYPE_CHECKING:
    from costlens.export.otlp_replay import Plan, Summary
    from costlens.storage.run_folder import RunFolder

__all__ = ["replay"]

EXIT_INCOMPLETE = 1
ITEMS = {"traces": "span", "metrics": "data point", "logs": "log record"}
MAX_SHOWN = 20


class Signal(str, Enum):
    """A kind of telemetry."""

    TRACES = "traces"
    METRICS = "metrics"
    LOGS = "logs"


class Protocol(str, Enum):
    """How the endpoint is spoken to."""

    HTTP = "http/protobuf"
    GRPC = "grpc"


class Backend(str, Enum):
    """A back-end whose limits are known."""

    TEMPO = "tempo"
    PROMETHEUS = "prometheus"
    MIMIR = "mimir"
    VICTORIAMETRICS = "victoriametrics"
    LOKI = "loki"


def replay(  # noqa: PLR0913, PLR0917 - a command's options are its parameters
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="A run's id, the beginning of one, a part of one such as its name, latest, or the "
            "path or URL of its folder.",
            show_default=False,
        ),
    ],
    endpoint: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="Where to send; for HTTP without /v1/<signal>. Other OTEL_EXPORTER_OTLP_* "
            "variables, such as those for headers, apply.",
            show_default=False,
        ),
    ],
    directory: Directory = None,
    protocol: Annotated[
        Protocol, typer.Option(help="How the endpoint is spoken to.")
    ] = Protocol.HTTP,
    signal: Annotated[
        list[Signal] | None,
        typer.Option(help="Only this kind; may be given again.", show_default="all"),
    ] = None,
    backend: Annotated[
        Backend | None,
        typer.Option(
            help="Warn of telemetry older than this back-end takes, and send it only what it takes."
        ),
    ] = None,
    rate: Annotated[
        float, typer.Option(min=0.1, max=10_000, help="Most requests a second.")
    ] = 20.0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be sent.")
    ] = False,
) -> None:
    """Send the telemetry that a run kept in files, each line once, with its own times and ids."""
    from costlens.export.age_limits import AGE_LIMITS, warn_of_age
    from costlens.storage.runs import open_run

    folder = open_run(run, load_config(dir=directory).run_dir)
    signals = {each.value for each in signal or Signal}
    if backend is not None and not signal:
        signals = {AGE_LIMITS[backend.value].signal}
    with progress("looking for what was not sent"):
        plan = _plan(folder, endpoint, signals, adopts=not dry_run)
    warning = backend and warn_of_age(backend.value, plan.segments, time.time_ns())
    if warning:
        typer.echo(f"costlens: {warning}", err=True)
    if dry_run:
        _tell_plan(plan)
        return
    summary = _send(folder, endpoint, protocol, plan, rate)
    _tell(summary, plan)
    if not summary.is_complete:
        raise typer.Exit(EXIT_INCOMPLETE)


def _plan(folder: RunFolder, endpoint: str, signals: Collection[str], *, adopts: bool) -> Plan:
    from costlens.export.otlp_replay import endpoint_key, make_plan

    key, running = endpoint_key(endpoint), _running_attempts(folder)
    plan = make_plan(
        folder.telemetry,
        key,
        signals=signals,
        is_live=lambda attempt: running is None or attempt in running,
    )
    if not (adopts and plan.dead):
        return plan
    for segment in plan.dead:
        folder.telemetry.adopt(segment)
    return _plan(folder, endpoint, signals, adopts=False)


def _running_attempts(folder: RunFolder) -> set[int] | None:
    """Return the attempts that may be running, or None where no record says so."""
    from costlens.core.records import Outcome
    from costlens.export.record import read_run

    try:
        attempts = read_run(folder, time.time()).attempts
    except RecordError:
        return None
    return {attempt.number for attempt in attempts if attempt.outcome is Outcome.RUNNING}


def _send(folder: RunFolder, endpoint: str, protocol: Protocol, plan: Plan, rate: float) -> Summary:
    from rich.console import Console
    from rich.progress import Progress

    from costlens.export.otel_replay import make_sender
    from costlens.export.otlp_replay import Replay

    sender = make_sender(endpoint, protocol.value)
    console = Console(stderr=True)
    try:
        with Progress(console=console, disable=not console.is_terminal) as progress:
            lines = progress.add_task(
                "sending", total=sum(planned.num_lines for planned in plan.segments)
            )
            replay = Replay(
                folder.telemetry,
                sender,
                endpoint,
                rate=rate,
                on_line=lambda: progress.advance(lines),
            )
            return replay.run(planned.segment for planned in plan.segments)
    finally:
        sender.close()


def _tell_plan(plan: Plan) -> None:
    from costlens.export.figures import show_time

    for planned in plan.segments:
        since = f", from {show_time(planned.first_ns / 1e9)} UTC" if planned.first_ns else ""
        typer.echo(f"{planned.segment.name}: {_count(planned.num_lines, 'line')}{since}")
    typer.echo(f"would send {_count(len(plan.segments) + len(plan.dead), 'segment')}")
    _tell_rest(plan)


def _tell(summary: Summary, plan: Plan) -> None:
    from costlens.export.figures import show_text

    items = [_count(num, ITEMS[name]) for name, num in sorted(summary.num_items.items())]
    requests = _count(summary.num_requests, "request")
    typer.echo(f"sent {_count(summary.num_segments, 'segment')}: {', '.join([requests, *items])}")
    _tell_rest(plan)
    for problem in summary.problems[:MAX_SHOWN]:
        typer.echo(f"not sent: {show_text(problem)}")
    if len(summary.problems) > MAX_SHOWN:
        typer.echo(f"not sent: {len(summary.problems) - MAX_SHOWN} more")
    if summary.stopped is not None:
        typer.echo(f"stopped at {show_text(summary.stopped)}; the same command goes on from there")


def _tell_rest(plan: Plan) -> None:
    if plan.num_sent:
        typer.echo(f"{_count(plan.num_sent, 'segment')} had been sent there before")
    if plan.live:
        typer.echo(f"{_count(len(plan.live), 'open segment')} left to the running attempt")
    if not (plan.segments or plan.dead or plan.num_sent or plan.live):
        typer.echo("the run has no telemetry files; COSTLENS_OTLP_FILE=1 keeps them")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
