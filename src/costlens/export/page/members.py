"""The sections on the attempts and the ranks of a run. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from costlens.account.goodput import PRODUCTIVE_PHASES
from costlens.core.phases import NAMES
from costlens.core.records import Outcome
from costlens.core.run_record import AttemptSummary, RankSummary, RunRecord
from costlens.export.console_endings import show_outcome
from costlens.export.figures import (
    show_count,
    show_duration,
    show_money,
    show_share,
    show_time,
)
from costlens.export.page.charts import Spec, colour, quantity, scale_of, tip
from costlens.export.page.parts import Cell, Chart, Figure, Section, Table, Tone, known, unknown

__all__ = ["describe_attempts", "describe_ranks", "outcome_tone"]

_MAX_ATTEMPTS = 100
_MAX_RANKS = 128
_MAX_DRAWN = 256
_MAX_NAMED = 8
# In their order: a sum of seconds depends on it in its last digit.
_TRAINING = tuple(phase.name.lower() for phase in PRODUCTIVE_PHASES)
_TONES: dict[Outcome, Tone] = {
    Outcome.RUNNING: "",
    Outcome.COMPLETED: "good",
    Outcome.STOPPED_EARLY: "good",
    Outcome.INTERRUPTED: "warn",
    Outcome.PREEMPTED: "warn",
    Outcome.FAILED: "bad",
    Outcome.LOST: "bad",
}


def outcome_tone(outcome: Outcome) -> Tone:
    """Return how an outcome is coloured."""
    return _TONES[outcome]


def describe_attempts(record: RunRecord) -> Section:
    """Return the section on attempts: how each began and ended, and what it cost."""
    shown = record.attempts[-_MAX_ATTEMPTS:]
    hidden = len(record.attempts) - len(shown)
    note = f"The first {hidden:,} attempts are left out." if hidden else None
    titles = ("attempt", "began (UTC)", "ended", "lasted", "ranks", "steps", "first step", "cost")
    rows = [_attempt_row(record, hidden + n, attempt) for n, attempt in enumerate(shown)]
    lead = (
        "One launch."
        if len(record.attempts) == 1
        else f"{show_count(len(record.attempts))} launches."
    )
    notes = _loop_notes(record)
    table = Table("Attempts", titles, rows, note, is_open=True)
    return Section("attempts", "Attempts", lead=lead, tables=[table], notes=notes)


def _loop_notes(record: RunRecord) -> list[str]:
    loop = record.restart_loop
    if loop is None:
        return []
    money = f" and cost {show_money(loop.money, loop.currency)}" if loop.money else ""
    told = (
        f"A restart loop: attempts {loop.first_attempt} to {loop.last_attempt} ended badly without "
        f"getting further{money}."
    )
    return [told]


def _attempt_row(record: RunRecord, index: int, attempt: AttemptSummary) -> list[Cell]:
    path = f"attempts.{index}"
    cause = attempt.error_type or attempt.signal
    exit_code = None if attempt.exit_code is None else f"exit code {attempt.exit_code}"
    details = ", ".join(detail for detail in (cause, exit_code) if detail)
    ending = f"{show_outcome(attempt)}{f' ({details})' if details else ''}"
    cost = record.cost.by_attempt.get(str(attempt.number))
    cost_path = f"cost.by_attempt.{attempt.number}"
    return [
        str(attempt.number),
        known(show_time(attempt.start_time), attempt.start_time, f"{path}.start_time"),
        Figure(ending, tone=outcome_tone(attempt.outcome)),
        known(show_duration(attempt.wall_s), attempt.wall_s, f"{path}.wall_s"),
        _ranks_of(attempt, path),
        _steps_of(attempt, path),
        _duration(attempt.first_step_s, "no step was seen", f"{path}.first_step_s"),
        unknown(record.cost.unknown or "no price", cost_path)
        if cost is None
        else known(show_money(cost, record.cost.currency), cost, cost_path),
    ]


def _ranks_of(attempt: AttemptSummary, path: str) -> Figure:
    text = f"{attempt.num_ranks:,}"
    if attempt.num_ranks < attempt.world_size:
        text += f" of {attempt.world_size:,}"
    return known(text, attempt.num_ranks, f"{path}.num_ranks")


def _steps_of(attempt: AttemptSummary, path: str) -> Figure:
    ends = (attempt.start_step, attempt.end_step)
    if ends == (None, None):
        return unknown("nobody tells its steps", f"{path}.end_step")
    text = " → ".join("?" if step is None else f"{step:,}" for step in ends)
    return Figure(text, None if ends[1] is None else str(ends[1]), f"{path}.end_step")


def _duration(seconds: float | None, why: str, path: str) -> Figure:
    return unknown(why, path) if seconds is None else known(show_duration(seconds), seconds, path)


def describe_ranks(record: RunRecord) -> Section:
    """Return the section on ranks: how even they are, and what each spent its time on."""
    ranks = record.ranks
    timed = [rank for rank in ranks if rank.median_iteration_s is not None]
    charts = [_draw_shares(ranks)] if len(ranks) > 1 else []
    if len(timed) > 1:
        charts.insert(0, _draw_medians(timed))
    shown = ranks
    note = None
    if len(ranks) > _MAX_RANKS:
        slowest = sorted(ranks, key=lambda r: (-(r.median_iteration_s or 0.0), r.rank))
        shown = sorted(slowest[:_MAX_RANKS], key=lambda rank: rank.rank)
        note = f"The {_MAX_RANKS} slowest of {len(ranks):,} ranks."
    titles = (
        *("rank", "host", "state", "median iteration", "paid", "training", "waiting for data"),
        "cost",
    )
    places = {rank.rank: index for index, rank in enumerate(ranks)}
    rows = [_rank_row(record, places[rank.rank], rank) for rank in shown]
    table = Table("Ranks, each in its newest attempt", titles, rows, note, is_open=len(ranks) <= 8)
    return Section("ranks", "Ranks", lead=_lead(record, timed), charts=charts, tables=[table])


def _lead(record: RunRecord, timed: Sequence[RankSummary]) -> str:
    silent = _tell_silent(record.attempts[-1])
    if len(timed) < 2:
        num = len(record.ranks)
        return ("One rank." if num == 1 else f"{show_count(num)} ranks.") + silent
    by_speed = sorted(timed, key=lambda rank: (rank.median_iteration_s or 0.0, rank.rank))
    fast, slow = by_speed[0], by_speed[-1]
    return (
        f"{show_count(len(record.ranks))} ranks; the median iteration takes "
        f"{show_duration(fast.median_iteration_s or 0.0)} on rank {fast.rank} and "
        f"{show_duration(slow.median_iteration_s or 0.0)} on rank {slow.rank} "
        f"({slow.host_name}).{silent}"
    )


def _tell_silent(attempt: AttemptSummary) -> str:
    named = attempt.missing_ranks[:_MAX_NAMED]
    # Where none reports, the run itself is gone, which the head of the page says.
    if not named or not attempt.num_reporting:
        return ""
    more = attempt.world_size - attempt.num_reporting - len(named)
    rest = f" and {more:,} more" if more > 0 else ""
    return f" Ranks that do not report: {', '.join(map(str, named))}{rest}."


def _draw_medians(ranks: Sequence[RankSummary]) -> Chart:
    drawn = _thin(ranks)
    values = [
        {"rank": r.rank, "host": r.host_name, "ms": (r.median_iteration_s or 0.0) * 1000}
        for r in drawn
    ]
    axis = {"labelSeparation": 4, "labelAngle": 0, "title": "rank", "ticks": False}
    spec: Spec = {
        "data": {"values": values},
        "height": 130,
        "mark": {"type": "bar", "fill": colour("accent")},
        "encoding": {
            "x": {"field": "rank", "type": "ordinal", "axis": axis},
            "y": quantity("ms", axis={"tickCount": 4}),
            "tooltip": tip({"rank": ("rank", "d"), "host": ("host", ""), "ms": ("ms", ",.4~g")}),
        },
    }
    medians = [(r.median_iteration_s or 0.0) * 1000 for r in drawn]
    said = f"From {min(medians):.4g} to {max(medians):.4g} ms."
    return Chart("medians-chart", "Median iteration by rank (ms)", said, spec)


def _draw_shares(ranks: Sequence[RankSummary]) -> Chart:
    drawn = _thin(ranks)
    seen = [name for name in NAMES if any(rank.time_s.get(name) for rank in drawn)]
    values = []
    for rank in drawn:
        total_s = rank.time_s.get("total", 0.0)
        shares = {n: round(rank.time_s.get(n, 0.0) / total_s, 5) for n in seen} if total_s else {}
        values.append({"rank": rank.rank, "host": rank.host_name, **shares})
    axis = {"labelSeparation": 4, "labelAngle": 0, "title": "rank", "ticks": False}
    x = {"field": "rank", "type": "ordinal", "axis": axis}
    told = {"rank": ("rank", "d"), "host": ("host", "")}
    spec: Spec = {
        "data": {"values": values},
        "height": 170,
        "transform": [
            {"fold": seen, "as": ["phase", "share"]},
            {"filter": "datum.share > 0"},
            {"stack": "share", "groupby": ["rank"], "as": ["low", "high"]},
        ],
        "mark": {"type": "bar"},
        "encoding": {
            "x": x,
            "y": quantity("low", axis={"format": ".0%", "tickCount": 4}),
            "y2": {"field": "high"},
            "color": {
                "field": "phase",
                "type": "nominal",
                "legend": None,
                "scale": scale_of(seen, "phase"),
            },
            "tooltip": tip(told | {"phase": ("phase", ""), "share": ("share", ".1%")}),
        },
    }
    legend = [(name.replace("_", " "), f"phase-{name.replace('_', '-')}") for name in seen]
    said = "Each rank's time by phase; the table has training and waits."
    return Chart("shares-chart", "Where each rank's time went", said, spec, legend)


def _thin(ranks: Sequence[RankSummary]) -> list[RankSummary]:
    """Return at most so many ranks, evenly chosen."""
    step = -(-len(ranks) // _MAX_DRAWN)
    return [*ranks[::step]]


def _rank_row(record: RunRecord, index: int, rank: RankSummary) -> list[Cell]:
    path = f"ranks.{index}"
    total_s = rank.time_s.get("total", 0.0)
    trained_s = sum(rank.time_s.get(name, 0.0) for name in _TRAINING)
    waited_s = rank.time_s.get("data_wait", 0.0)
    cost = record.cost.by_rank.get(str(rank.rank))
    state = rank.outcome.value
    if rank.open_phase is not None:
        state += f", in {rank.open_phase}"
    return [
        str(rank.rank),
        Figure(rank.host_name),
        Figure(state, tone=outcome_tone(rank.outcome)),
        _duration(rank.median_iteration_s, "no iteration was timed", f"{path}.median_iteration_s"),
        known(show_duration(total_s), total_s, f"{path}.time_s.total"),
        _part(trained_s, total_s),
        _part(waited_s, total_s),
        unknown(record.cost.unknown or "no price", f"cost.by_rank.{rank.rank}")
        if cost is None
        else known(show_money(cost, record.cost.currency), cost, f"cost.by_rank.{rank.rank}"),
    ]


def _part(seconds: float, total_s: float) -> Figure:
    if total_s <= 0:
        return unknown("no time was paid")
    return known(show_share(seconds / total_s), seconds / total_s)
