"""The sections on what a unit of work costs, and on what a crash would. Pure."""

from __future__ import annotations

from costlens.core.run_record import RunRecord
from costlens.export.console_details import describe_mfu
from costlens.export.figures import (
    show_bytes,
    show_count,
    show_duration,
    show_money,
    show_rate,
    show_share,
    show_time,
)
from costlens.export.page.parts import Cell, Figure, Section, Table, Tone, known, unknown

__all__ = ["describe_saves", "describe_units"]

_UNITS = {
    "rate_per_hour": ("an hour, now", "no price is known"),
    "per_1k_tokens": ("per 1k tokens", "no tokens are counted"),
    "per_million_tokens": ("per million tokens", "no tokens are counted"),
    "per_million_productive_tokens": (
        "per million productive tokens",
        "no tokens are counted, or nobody tells what survived",
    ),
    "per_sample": ("per sample", "no samples are counted"),
    "per_step": ("per optimizer step", "no optimizer is watched"),
    "per_productive_step": ("per productive step", "nobody tells which steps survived"),
    "per_gpu_hour": ("per hour of a GPU", "no GPU was paid for"),
    "per_effective_gpu_hour": (
        "per productive hour of a GPU",
        "no GPU was paid for, or nobody tells what survived",
    ),
}


_BASES = {
    "tokens": "Tokens are those that are no padding.",
    "slots": "Tokens are positions, padding included: nobody counts the others.",
}


def describe_units(record: RunRecord) -> Section:
    """Return the section: money per unit of work, the budget, energy and MFU."""
    cost = record.cost
    rows: list[list[Cell]] = []
    for name, (words, why) in _UNITS.items():
        amount, path = getattr(cost, name), f"cost.{name}"
        figure = unknown(cost.unknown or why, path)
        if amount is not None:
            figure = known(show_money(amount, cost.currency), amount, path)
        rows.append([words, figure])
    rows += [
        ["budget", _budget(record)],
        ["energy of the GPUs", _energy(record)],
        ["model FLOPs utilization", _mfu(record)],
    ]
    basis = None if cost.token_basis is None else _BASES[cost.token_basis]
    table = Table("What a unit of work costs", ("", "value"), rows, basis, is_open=True)
    return Section("units", "Unit costs", lead=_lead(record), tables=[table])


def _lead(record: RunRecord) -> str:
    cost = record.cost
    if cost.total is None:
        return "Money is unknown; what is missing stands beside each figure."
    partial = " A part of the run has no price." if cost.is_partial else ""
    return f"Prices from {', '.join(cost.sources) or 'the record'}.{partial}"


def _budget(record: RunRecord) -> Figure:
    part = record.budget
    if part is None:
        return Figure("none is set", why="COSTLENS_BUDGET")
    if part.spent is None or part.share is None:
        return unknown("nobody knows what is spent of it", "budget.share")
    tone: Tone = "bad" if part.share >= 1 else "warn" if part.share >= 0.8 else ""
    text = f"{show_share(part.share)} of {show_money(part.amount, part.currency)}"
    return known(text, part.share, "budget.share", tone)


def _energy(record: RunRecord) -> Figure:
    joules = record.gpu.energy_joules
    if joules is None:
        return unknown(record.gpu.unknown or "the driver does not tell", "gpu.energy_joules")
    energy = record.cost.energy
    money = None if energy is None or energy.total is None else energy
    paid = "" if money is None else f" · {show_money(money.total or '0', money.currency)}"
    text = f"{show_rate(joules / 3.6e6)} kWh{paid}"
    return known(text, joules, "gpu.energy_joules")


def _mfu(record: RunRecord) -> Figure:
    ratio = record.mfu.ratio
    if ratio is None:
        why = record.mfu.unknown or "set COSTLENS_FLOPS_PER_TOKEN or COSTLENS_ESTIMATE_FLOPS=1"
        return unknown(why, "mfu.ratio")
    return known(describe_mfu(record.mfu) or show_share(ratio), ratio, "mfu.ratio")


def describe_saves(record: RunRecord) -> Section:
    """Return the section: the saves that costlens made, and what a crash would lose now."""
    key, title = "saves", "Checkpoints"
    part = record.checkpoints
    if part.url is None:
        spent = show_duration(part.time_s) if part.time_s else None
        own = f"; {spent} went into saves that the training made itself" if spent else ""
        why = f"costlens makes no saves here: set COSTLENS_CHECKPOINT_URL{own}"
        return Section(key, title, unknown=why)
    rows: list[list[Cell]] = [
        ["saved", _count(part.num_saved, "checkpoints.num_saved")],
        ["failed", _count(part.num_failed, "checkpoints.num_failed", is_bad=True)],
        ["left out while another was written", _count(part.num_skipped, "checkpoints.num_skipped")],
        ["training stood still", _seconds(part.stall_s, "checkpoints.stall_s")],
        ["until durable, all together", _seconds(part.write_s, "checkpoints.write_s")],
        ["size of the newest", _bytes(part.num_bytes)],
        ["newest", _newest(record)],
        ["a crash now would cost at most", _worst(record)],
        ["seconds between two saves", _interval(record)],
    ]
    notes = [f"What a resume passed over: {line}." for line in part.rejected]
    notes += [f"Not restored exactly: {line}." for line in part.inexact]
    table = Table("Saves of all attempts", ("", "value"), rows)
    return Section(key, title, lead=f"They go to {part.url}.", tables=[table], notes=notes)


def _count(count: int, path: str, *, is_bad: bool = False) -> Figure:
    return known(show_count(count), count, path, "bad" if is_bad and count else "")


def _seconds(seconds: float, path: str) -> Figure:
    return known(show_duration(seconds), seconds, path)


def _bytes(count: int | None) -> Figure:
    path = "checkpoints.num_bytes"
    return (
        unknown("none is saved", path) if count is None else known(show_bytes(count), count, path)
    )


def _newest(record: RunRecord) -> Figure:
    part, path = record.checkpoints, "checkpoints.last_step"
    if part.last_step is None:
        return unknown("none is saved", path)
    when = "" if part.last_time is None else f", {show_time(part.last_time)} UTC"
    return known(f"step {show_count(part.last_step)}{when}", part.last_step, path)


def _worst(record: RunRecord) -> Figure:
    money, path = record.checkpoints.worst_loss_money, "checkpoints.worst_loss_money"
    if money is None:
        return unknown(record.cost.unknown or "no save has been timed yet", path)
    return known(show_money(money, record.cost.currency), money, path)


def _interval(record: RunRecord) -> Figure:
    part, path = record.checkpoints.interval, "checkpoints.interval.interval_s"
    if part is None:
        return unknown("no save has been timed yet", path)
    return known(f"{show_duration(part.interval_s)} ({part.rail})", part.interval_s, path)
