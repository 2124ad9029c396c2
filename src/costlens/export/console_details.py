"""The parts of the console report on what was reached, what it cost and how watching fared."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from costlens.core.budget_records import BudgetPart
from costlens.core.mfu_records import MfuPart
from costlens.core.run_record import CostPart, EnergyCostPart, RunRecord
from costlens.core.telemetry_records import ExportHealth
from costlens.core.training_records import QualityPart
from costlens.export.console_layout import Renderable, Row, join, lay_out, plural
from costlens.export.figures import (
    show_count,
    show_duration,
    show_money,
    show_rate,
    show_share,
    show_time,
    show_value,
)

__all__ = ["describe_mfu", "describe_money", "describe_quality", "describe_telemetry"]

# Numbers that steer or describe the training; no value of theirs is better than another.
# What goes well, or has ended well, needs no word for its state.
_EXPORT_STATES: dict[str, str | None] = {
    "ok": None,
    "stopped": None,
    "failing": "failing, so tried again",
    "open": "no answer, so tried rarely",
    "inert": "of another process",
}
_WITHOUT_BEST = ("learning_rate", "grad_norm")


def describe_quality(record: RunRecord) -> Iterable[Renderable]:
    """Yield the quality metrics with their best values and what reaching them took."""
    if not record.quality:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("", overflow="fold")
    for title in ("last", "best", "best after", "cost to best"):
        table.add_column(title, justify="right", no_wrap=True)
    for name, part in record.quality.items():
        has_best = not any(word in name.lower() for word in _WITHOUT_BEST)
        table.add_row(Text(name), *_quality_cells(part, record.cost.currency, has_best=has_best))
    yield table
    for name, part in record.quality.items():
        if part.num_nonfinite:
            yield Text(
                f"{name}: {plural(part.num_nonfinite, 'value')} not finite, the first at "
                f"iteration {part.first_nonfinite_iteration}",
                "red",
            )


def _quality_cells(part: QualityPart, currency: str | None, *, has_best: bool) -> list[str]:
    if not has_best:
        return [show_value(part.last)]
    after_s, cost = part.best_after_s, part.cost_to_best
    return [
        show_value(part.last),
        show_value(part.best),
        "–" if after_s is None else show_duration(after_s),
        "–" if cost is None else show_money(cost, currency),
    ]


def describe_money(record: RunRecord) -> Iterable[Renderable]:
    """Yield what the run cost, or why that is unknown."""
    cost = record.cost
    rows: list[Row] = []
    if cost.by_currency:
        totals = [show_money(total, currency) for currency, total in cost.by_currency.items()]
        rows.append(("total", " and ".join(totals)))
    if cost.total is not None:
        partial = "partial: a price or a rank's record is missing" if cost.is_partial else None
        rate = (
            f"{show_money(cost.rate_per_hour, cost.currency)} an hour"
            if cost.rate_per_hour
            else None
        )
        rows.append(("total", join(show_money(cost.total, cost.currency), rate, partial)))
    if record.budget is not None:
        rows.append(("budget", _describe_budget(record.budget)))
    rows += _describe_units(cost)
    if cost.energy is not None:
        rows.append(("energy", _describe_energy(cost.energy)))
    if cost.sources:
        rows.append(("price from", " and ".join(cost.sources)))
    if cost.unknown:
        rows.append(("unknown", Text(cost.unknown, "yellow")))
    yield lay_out(rows)


def _describe_units(cost: CostPart) -> Iterable[Row]:
    """Yield what a token, or else a sample or a step, and an hour of a GPU cost."""
    noun = cost.token_basis or ""
    units = {
        f"1k {noun}": cost.per_1k_tokens,
        f"million {noun}": cost.per_million_tokens,
        f"million productive {noun}": cost.per_million_productive_tokens,
    }
    if cost.per_million_productive_tokens == cost.per_million_tokens:
        units.pop(f"million productive {noun}")
    units |= {
        "sample": None if noun else cost.per_sample,
        "step": None if noun or cost.per_sample else cost.per_step,
        "GPU-hour": cost.per_gpu_hour,
        "effective GPU-hour": cost.per_effective_gpu_hour,
    }
    for unit, money in units.items():
        if money is not None:
            yield f"per {unit}", show_money(money, cost.currency)


def _describe_energy(energy: EnergyCostPart) -> Renderable:
    if energy.total is None:
        return Text(energy.unknown or "unknown", "yellow")
    kwh = None if energy.energy_kwh is None else f"{energy.energy_kwh:.3g} kWh"
    partial = "partial: not every device told" if energy.is_partial else None
    return join(show_money(energy.total, energy.currency), kwh, "not in the total", partial)


def describe_mfu(mfu: MfuPart) -> str | None:
    """Return the MFU with what it is of, or why it is unknown; None where nobody asked for it."""
    if mfu.ratio is None or mfu.peak_flops_per_s is None:
        return None if mfu.unknown is None else f"unknown: {mfu.unknown}"
    peak = f"of {show_rate(mfu.peak_flops_per_s / 1e12)} TFLOP/s {mfu.precision or ''}".strip()
    return join(f"{show_share(mfu.ratio)} {peak}", "an estimate" if mfu.is_estimate else None)


def _describe_budget(budget: BudgetPart) -> Text:
    amount = show_money(budget.amount, budget.currency)
    if budget.spent is None or budget.share is None:
        return Text(f"{amount}, of which nobody knows what is spent", "yellow")
    least = "at least " if budget.is_partial else ""
    style = "red" if budget.share >= 1 else "yellow" if budget.share >= 0.8 else ""
    return Text(f"{least}{show_share(budget.share)} of {amount} is spent", style)


def describe_telemetry(record: RunRecord) -> Iterable[Renderable]:
    """Yield what watching took, sent and lost."""
    seen, total_s = record.telemetry, record.time_s.get("total", 0.0)
    share = f" ({show_share(seen.overhead_s / total_s)} of the time)" if total_s > 0 else ""
    rows: list[Row] = [("own thread", f"{show_duration(seen.overhead_s)} of CPU time{share}")]
    rows += [(signal, _health(signal, health)) for signal, health in seen.exports.items()]
    if seen.detail is not None and seen.detail.until is not None:
        ends = f"until {show_time(seen.detail.until)} UTC"
        rows.append(("detail", f"{seen.detail.name.value} {ends}"))
    losses = {
        "iterations not recorded in detail": seen.rows_dropped,
        "spans dropped": seen.spans_dropped,
        "quality names dropped": seen.quality_dropped,
        "device values dropped": seen.values_dropped,
        "record writes failed": seen.record_failures,
        "iterations without device time": seen.iterations_unresolved,
        "requests not read": seen.control_failures,
    }
    lost = [f"{show_count(count)} {what}" for what, count in losses.items() if count]
    if lost:
        rows.append(("lost", Text(join(*lost), "yellow")))
    if seen.faults:
        faults = [f"{place} {count}×" for place, count in seen.faults.items()]
        rows.append(("own faults", Text(join(*faults), "red")))
    yield lay_out(rows)


def _health(signal: str, health: ExportHealth) -> Text:
    failed = f"{show_count(health.exports_failed)} failed" if health.exports_failed else None
    dropped = f"{show_count(health.items_dropped)} dropped" if health.items_dropped else None
    sent = f"{show_count(health.exports_ok)} {'written' if signal == 'files' else 'sent'}"
    text = join(
        _EXPORT_STATES.get(health.state, health.state),
        sent,
        failed,
        dropped,
        health.last_error_type,
    )
    return Text(text, "yellow" if failed or dropped else "")
