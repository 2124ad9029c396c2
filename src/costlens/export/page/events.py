"""The section that lays out what happened when: attempts, saves, evaluation, stalls, gaps. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from costlens.core.records import Outcome
from costlens.core.run_record import AttemptSummary, RunRecord
from costlens.diagnose.causes import COMPUTE_BOUND
from costlens.export.console_endings import show_outcome
from costlens.export.figures import show_count, show_duration, show_time
from costlens.export.page.charts import COLUMN_X, Spec, colour, tip
from costlens.export.page.columns import Column
from costlens.export.page.parts import Cell, Chart, Figure, Section, Table

__all__ = ["describe_events", "end_of"]

_LANES = ("attempts", "not running", "saves", "evaluation", "restores", "findings", "events")
_PHASE_LANES = {"checkpoint": "saves", "validation": "evaluation", "restore": "restores"}
_MAX_ROWS = 400
_MAX_LISTED = 100
_SHORT = 300  # parts of the whole: about a pixel on a phone
_GOOD = frozenset({Outcome.COMPLETED, Outcome.STOPPED_EARLY})


@dataclass(frozen=True, slots=True)
class _Event:
    """Something that lasted from one moment to another, or came at one."""

    lane: str
    start_s: float
    end_s: float
    kind: str
    text: str


def describe_events(record: RunRecord, columns: Sequence[Column]) -> Section:
    """Return the section: a lane a kind of event, and the events that have a time of their own."""
    told = [*_attempts(record.attempts), *_gaps(record.attempts), *_notices(record)]
    events = [*told, *_phases(columns)]
    kept = events[-_MAX_ROWS:]
    notes = ["Saves and evaluation stand where a window holds any of their time; times are UTC."]
    if len(kept) < len(events):
        notes.append(f"The first {len(events) - len(kept):,} events are left out of the chart.")
    return Section(
        "events",
        "What happened when",
        lead=_lead(record),
        charts=[_draw(kept)],
        tables=[_tabulate(told)],
        notes=notes,
    )


def end_of(attempt: AttemptSummary) -> float:
    """Return the Unix time at which an attempt ended, or was last seen."""
    end = attempt.heartbeat_time if attempt.end_time is None else attempt.end_time
    return max(end, attempt.start_time)


def _lead(record: RunRecord) -> str:
    num = len(record.attempts)
    start = show_time(record.attempts[0].start_time)
    last = record.attempts[-1]
    until = (
        "still running" if last.outcome is Outcome.RUNNING else f"until {show_time(end_of(last))}"
    )
    attempts = "one attempt" if num == 1 else f"{show_count(num)} attempts"
    return f"{attempts.capitalize()} from {start}, {until} UTC."


def _attempts(attempts: Iterable[AttemptSummary]) -> Iterator[_Event]:
    for attempt in attempts:
        kind = "good" if attempt.outcome in _GOOD else "bad"
        kind = "running" if attempt.outcome is Outcome.RUNNING else kind
        cause = attempt.error_type or attempt.signal
        text = f"attempt {attempt.number}: {show_outcome(attempt)}{f' ({cause})' if cause else ''}"
        yield _Event("attempts", attempt.start_time, end_of(attempt), kind, text)


def _gaps(attempts: Sequence[AttemptSummary]) -> Iterator[_Event]:
    for before, after in itertools.pairwise(attempts):
        start, end = end_of(before), after.start_time
        if end > start:
            text = f"not running for {show_duration(end - start)} before attempt {after.number}"
            yield _Event("not running", start, end, "gap", text)


def _notices(record: RunRecord) -> Iterator[_Event]:
    for attempt in record.attempts:
        if attempt.preemption is not None:
            asked = attempt.preemption
            saved = "no step was lost" if asked.is_covered else "steps were left behind"
            text = f"attempt {attempt.number} was asked to leave by {asked.reason}: {saved}"
            yield _Event("events", asked.time, asked.time, "bad", text)
    for rank in record.ranks:
        if rank.stall is not None:
            stall = rank.stall
            text = (
                f"rank {rank.rank} has not moved in {stall.phase} for {show_duration(stall.age_s)}"
            )
            yield _Event("events", stall.since, stall.since + stall.age_s, "bad", text)
    for part in record.findings:
        if part.since is not None and part.name != COMPUTE_BOUND:
            end = part.since if part.is_open is False else end_of(record.attempts[-1])
            kind = "bad" if part.severity == "critical" else "warn"
            yield _Event("findings", part.since, max(part.since, end), kind, f"{part.name} found")
    last = record.checkpoints
    if last.last_time is not None and last.last_step is not None:
        text = f"the newest checkpoint, at step {show_count(last.last_step)}"
        yield _Event("events", last.last_time, last.last_time, "good", text)


def _phases(columns: Iterable[Column]) -> Iterator[_Event]:
    """Yield stretches of columns in which a phase took any time."""
    for phase, lane in _PHASE_LANES.items():
        stretch: list[Column] = []
        for column in [*columns, None]:
            if column is not None and column.phase_ns[phase] > 0:
                stretch.append(column)
                continue
            if stretch:
                spent = show_duration(sum(c.phase_ns[phase] for c in stretch) / 1e9)
                text = f"{spent} of {lane}"
                yield _Event(lane, stretch[0].start_s, stretch[-1].end_s, phase, text)
            stretch = []


def _list_rows(events: Sequence[_Event]) -> list[Spec]:
    """Return the events as the chart's data, in milliseconds."""
    span_s = max(e.end_s for e in events) - min(e.start_s for e in events)
    return [
        {
            "lane": event.lane,
            "a": round(event.start_s * 1000),
            "b": round(event.end_s * 1000),
            "kind": event.kind,
            "text": event.text,
            "short": event.end_s - event.start_s < span_s / _SHORT,
        }
        for event in events
    ]


def _draw(events: Sequence[_Event]) -> Chart:
    rows = _list_rows(events)
    lanes = [lane for lane in _LANES if any(event.lane == lane for event in events)]
    kinds = ["good", "running", "bad", "warn", "gap", *_PHASE_LANES]
    y = {
        "field": "lane",
        "type": "nominal",
        "sort": lanes,
        "axis": {"title": None, "ticks": False, "domain": False},
    }
    hue = {
        "field": "kind",
        "type": "nominal",
        "legend": None,
        "scale": {"domain": kinds, "range": [colour(f"event-{kind}") for kind in kinds]},
    }
    told = tip({"text": ("what", ""), "a": ("from", "time"), "b": ("to", "time")})
    layers: list[Spec] = [
        {
            "mark": {"type": "bar", "cornerRadius": 2, "height": {"band": 0.6}},
            "encoding": {**COLUMN_X, "y": y, "color": hue, "tooltip": told},
        }
    ]
    if any(row["short"] for row in rows):
        # What lasted a moment would be thinner than a pixel.
        layers.append(
            {
                "transform": [{"filter": "datum.short"}],
                "mark": {"type": "tick", "thickness": 2, "size": 18},
                "encoding": {"x": COLUMN_X["x"], "y": y, "color": hue, "tooltip": told},
            }
        )
    spec: Spec = {"data": {"values": rows}, "height": 30 * len(lanes), "layer": layers}
    said = "; ".join(event.text for event in events[:20])
    return Chart("events-chart", "What happened when", f"{said}.", spec)


def _tabulate(events: Sequence[_Event]) -> Table:
    ordered = sorted(events, key=lambda event: event.start_s)
    rows: list[list[Cell]] = [
        [
            event.text,
            Figure(show_time(event.start_s), str(event.start_s)),
            Figure(
                show_duration(event.end_s - event.start_s) if event.end_s > event.start_s else "–"
            ),
        ]
        for event in ordered[-_MAX_LISTED:]
    ]
    hidden = len(ordered) - len(rows)
    note = f"The first {hidden:,} are left out." if hidden > 0 else None
    return Table("Events that have a time of their own", ("", "from (UTC)", "lasted"), rows, note)
