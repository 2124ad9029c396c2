"""The report of a run for people: where the time and the money went, on one page of a terminal.

Reads nothing but the merged record, so that the page and ``--json`` tell the same story. Used by
``costlens report``, the demo, and rank 0 when a run ends.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from decimal import Decimal

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from costlens.account.goodput import PRODUCTIVE_PHASES
from costlens.core.records import Outcome
from costlens.core.run_record import CostPart, RunRecord
from costlens.export.console_checkpoints import describe_checkpoints
from costlens.export.console_details import (
    describe_mfu,
    describe_money,
    describe_quality,
    describe_telemetry,
)
from costlens.export.console_endings import describe_last_words, show_outcome
from costlens.export.console_findings import FINDINGS_TITLE, describe_findings
from costlens.export.console_gang import describe_gang, describe_loop, describe_missing
from costlens.export.console_goodput import describe_goodput
from costlens.export.console_gpu import describe_gpus, gpu_title
from costlens.export.console_host import describe_host
from costlens.export.console_layout import Renderable, Row, join, lay_out, plural, section
from costlens.export.console_practice import describe_practice, practice_title
from costlens.export.console_precision import describe_precision
from costlens.export.console_queue import describe_queue
from costlens.export.console_ranks import describe_attempts, describe_now, describe_ranks
from costlens.export.console_text import make_printable
from costlens.export.figures import (
    money_decimals,
    show_bar,
    show_count,
    show_duration,
    show_money,
    show_rate,
    show_share,
    show_time,
)

__all__ = ["OUTCOME_STYLES", "make_page", "render"]

OUTCOME_STYLES = {
    Outcome.RUNNING: "bold cyan",
    Outcome.COMPLETED: "bold green",
    Outcome.STOPPED_EARLY: "bold green",
    Outcome.INTERRUPTED: "bold yellow",
    Outcome.PREEMPTED: "bold yellow",
    Outcome.FAILED: "bold red",
    Outcome.LOST: "bold red",
}
_WAITING = {"data_wait", "communication", "idle", "idle_device"}
_MAX_WIDTH = 100
_MAX_BAR = 36
_MIN_SHOWN_SHARE = 0.001
_PLAIN = str.maketrans(
    {"·": "-", "–": "-", "→": ">", "×": "x", "•": "*", "µ": "u", "…": "~"}
    | dict.fromkeys("█▌▋▊▉", "#")
    | dict.fromkeys("▏▎▍", "")
)


def render(record: RunRecord, console: Console, *, now: float | None = None) -> None:
    """Print the report of a run.

    Colours and widths follow the console: 80 columns without colour are enough.

    Args:
        record: The merged record.
        console: Where to print.
        now: Unix time of the reader, for the age of a live run; by default the present.
    """
    width = min(console.width, _MAX_WIDTH)
    page = make_page(record, width, time.time() if now is None else now)
    if not console.options.ascii_only:
        console.print(page, width=width, markup=False, highlight=False)
        return
    with console.capture() as capture:
        console.print(page, width=width, markup=False, highlight=False)
    plain = capture.get().translate(_PLAIN).encode("ascii", "replace").decode()
    console.file.write(plain)


def make_page(record: RunRecord, width: int, now: float) -> Group:
    """Return the report of a run, to be printed or shown again and again.

    Args:
        record: The merged record.
        width: Columns, > 0.
        now: Unix time of the reader.
    """
    return Group(*_sections(make_printable(record), min(width, _MAX_WIDTH), now))


def _sections(record: RunRecord, width: int, now: float) -> Iterable[Renderable]:
    yield from _header(record)
    yield from section(FINDINGS_TITLE, describe_findings(record))
    yield from section("Now", describe_now(record, now))
    yield from section("Last words", describe_last_words(record))
    yield from section(_time_title(record), _time(record, width))
    yield from section("Speed", _speed(record))
    yield from section("Work done", _work(record))
    yield from section("Quality", describe_quality(record))
    yield from section("Money", describe_money(record))
    yield from section(gpu_title(record), describe_gpus(record))
    yield from section("Host", describe_host(record))
    yield from section("Job", describe_queue(record))
    yield from section("Checkpoints", describe_checkpoints(record))
    yield from section("Start-up", _startup(record))
    yield from section("Attempts", [*describe_loop(record), *describe_attempts(record)])
    yield from section("Ranks", [*describe_missing(record), *describe_ranks(record)])
    yield from section(practice_title(record), describe_practice(record))
    yield from section("Watching", describe_telemetry(record))
    yield from section("Problems", [Text(f"• {line}", "yellow") for line in record.problems])
    yield ""


def _header(record: RunRecord) -> Iterable[Renderable]:
    run, newest = record.run, record.attempts[-1]
    title = Text.assemble(
        (run.name, "bold"), "  ", (show_outcome(newest), OUTCOME_STYLES[newest.outcome])
    )
    asked = newest.preemption and newest.preemption.reason
    cause = asked or newest.error_type or newest.signal
    if cause:
        title.append(f" ({cause})", "red")
    yield title
    yield Text(run.id, "dim")
    hosts = sorted({rank.host_name for rank in record.ranks})
    place = hosts[0] if len(hosts) == 1 else plural(len(hosts), "host")
    devices = sorted({rank.device for rank in record.ranks})
    yield join(
        run.framework,
        " and ".join(devices),
        f"{plural(len(record.ranks), 'rank')} on {place}",
        plural(len(record.attempts), "attempt"),
    )
    wall_s = sum(attempt.wall_s for attempt in record.attempts)
    started = record.attempts[0].start_time
    yield join(f"started {show_time(started)} UTC", f"{show_duration(wall_s)} of wall time")
    if run.debug:
        yield Text(f"a debug run: {run.debug}", "yellow")


def _time_title(record: RunRecord) -> str:
    together = f", {len(record.ranks)} ranks together" if len(record.ranks) > 1 else ""
    return f"Where the time went{together}"


def _time(record: RunRecord, width: int) -> Iterable[Renderable]:
    total_s = record.time_s.get("total", 0.0)
    spent = {name: s for name, s in record.time_s.items() if name != "total" and s > 0}
    if total_s <= 0 or not spent:
        yield Text("no time has passed yet", "dim")
        return
    ordered = sorted(spent, key=lambda name: (-spent[name], name))
    shown = [name for name in ordered if spent[name] / total_s >= _MIN_SHOWN_SHARE]
    rest = ordered[len(shown) :]
    if len(rest) == 1:
        shown, rest = ordered, []
    bar_width = max(8, min(_MAX_BAR, width - 52))
    table = _time_table(record.cost)
    for name in shown:
        bar = show_bar(spent[name] / spent[ordered[0]], bar_width).ljust(bar_width)
        cells = _time_cells(record, [name])
        table.add_row(name, Text(bar, _phase_style(name)), *cells)
    if rest:
        table.add_row(f"{len(rest)} others", "", *_time_cells(record, rest))
    table.add_row("total", "", *_time_cells(record, ordered), style="bold")
    yield table
    yield from describe_goodput(record)


def _time_table(cost: CostPart) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("", no_wrap=True)
    table.add_column("", no_wrap=True)
    for title in ("share", "time", cost.currency or ""):
        table.add_column(title, justify="right", no_wrap=True)
    return table


def _time_cells(record: RunRecord, names: list[str]) -> list[str]:
    spent_s = sum(record.time_s[name] for name in names)
    cells = [show_share(spent_s / record.time_s["total"]), show_duration(spent_s)]
    if record.cost.total is None:
        return cells
    money = sum(Decimal(record.cost.by_phase.get(name, "0")) for name in names)
    return [*cells, show_money(f"{money:f}", decimals=money_decimals(record.cost.total))]


def _phase_style(name: str) -> str:
    if name in {phase.name.lower() for phase in PRODUCTIVE_PHASES}:
        return "green"
    return "yellow" if name in _WAITING else "blue"


def _speed(record: RunRecord) -> Iterable[Renderable]:
    iterations, rates = record.iteration_time, record.rates
    if not iterations.count:
        yield Text("no iteration has been timed: the first one belongs to start-up", "dim")
        return
    quantiles = {"median": iterations.median_s, "p90": iterations.p90_s, "p99": iterations.p99_s}
    per_s = {
        "iterations/s": rates.iterations_per_s,
        "steps/s": rates.steps_per_s,
        "samples/s": rates.samples_per_s,
        "tokens/s": rates.tokens_per_s,
        "slots/s": rates.slots_per_s if rates.tokens_per_s is None else None,
    }
    timed = [f"{name} {show_duration(s)}" for name, s in quantiles.items() if s is not None]
    rows = [
        ("iteration", join(*timed)),
        ("rate", join(*(f"{show_rate(rate)} {unit}" for unit, rate in per_s.items() if rate))),
        ("MFU", describe_mfu(record.mfu) or ""),
    ]
    yield lay_out((label, value) for label, value in rows if value)


def _work(record: RunRecord) -> Iterable[Renderable]:
    progress = record.progress
    watched = progress.optimizer_steps is not None
    steps = show_count(progress.optimizer_steps or 0) if watched else "unknown: none is watched"
    reached, goal = record.attempts[-1].end_step, progress.total_steps
    if (
        goal is not None
        and len(record.attempts) == 1
        and reached in {None, progress.optimizer_steps}
    ):
        steps += f" of {show_count(goal)}"
    elif goal is not None and reached is not None:
        steps += f" · at {show_count(reached)} of {show_count(goal)}"
    skipped = f"{show_count(progress.skipped_steps)} skipped" if progress.skipped_steps else None
    lost = f"{show_count(progress.lost_steps)} done again" if progress.lost_steps else None
    rows: list[Row] = [
        ("iterations", show_count(progress.iterations)),
        ("optimizer steps", join(steps, skipped, lost)),
    ]
    if precision := describe_precision(record):
        rows.append(("precision", precision))
    if progress.samples is not None:
        rows.append(("samples", show_count(progress.samples)))
    tokens, slots = progress.tokens, progress.slots
    if tokens is not None:
        has_padding = slots is not None and tokens < slots
        padding = f"{show_share(1 - tokens / slots)} padding" if slots and has_padding else None
        rows.append(("tokens", join(show_count(tokens), padding)))
    elif slots is not None:
        rows.append(("slots", f"{show_count(slots)} token positions, padding included"))
    batches = {"validation": progress.validation_batches, "test": progress.test_batches}
    rows += [(f"{stage} batches", show_count(n)) for stage, n in batches.items() if n]
    yield lay_out(rows)


def _startup(record: RunRecord) -> Iterable[Renderable]:
    parts = {
        "allocation": record.startup.allocation_s,
        "process": record.startup.process_s,
        "set-up": record.startup.setup_s,
        "first iteration": record.startup.first_iteration_s,
    }
    known = [f"{name} {show_duration(s)}" for name, s in parts.items() if s is not None]
    if known:
        yield " → ".join(known)
    yield from describe_gang(record)
