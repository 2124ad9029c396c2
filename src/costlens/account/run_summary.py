"""Reduces a run to what is compared: its figures, their noise, and what it ran on.

Values are those of the merged record; noise, and speed without warm-up, come from the windows of
one rank an attempt: the ranks of a job make their steps together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from costlens.account.goodput import PRODUCTIVE_PHASES
from costlens.account.noise import MIN_WINDOWS, Pair, estimate_ratio
from costlens.account.setting import describe_setting
from costlens.account.steady import SteadyWindows, find_steady
from costlens.core.clock import NS_PER_S
from costlens.core.comparison_records import EstimatePart, FigurePart, FindingSeen, RunSummary
from costlens.core.phases import ITERATION_PHASES, Phase
from costlens.core.records import Outcome, RankRecord
from costlens.core.run_record import RunRecord
from costlens.core.training_records import WindowPart

__all__ = ["choose_leads", "summarize_run"]

COMPARED_PHASES = (*ITERATION_PHASES, Phase.CHECKPOINT, Phase.VALIDATION)
"""The phases that a step's share of is compared; the others happen once."""

_PRODUCTIVE = tuple(phase.name.lower() for phase in PRODUCTIVE_PHASES)
_MILLION = 1_000_000
_MAX_TEXT = 300
_MAX_FINDINGS = 64

_Count = Callable[[WindowPart], float]
_Unit = Literal["step", "iteration"]


def choose_leads(ranks: Sequence[RankRecord]) -> list[RankRecord]:
    """Return the rank of each attempt whose windows stand for it, in the order of attempts.

    The lowest that trained, in the attempts with as many ranks as the newest: with another number
    of them a step is another step.
    """
    trained = [record for record in ranks if record.iteration_time.count > 0]
    if not trained:
        return []
    newest = max(trained, key=lambda record: record.attempt.number)
    leads: dict[int, RankRecord] = {}
    for record in sorted(trained, key=lambda record: record.rank.rank, reverse=True):
        if record.rank.world_size == newest.rank.world_size:
            leads[record.attempt.number] = record
    return [leads[number] for number in sorted(leads)]


def summarize_run(
    record: RunRecord, ranks: Sequence[RankRecord], windows: Sequence[Sequence[WindowPart]]
) -> RunSummary:
    """Return what a run is compared by.

    Args:
        record: The merged record.
        ranks: The records it was merged from.
        windows: The windows of each of ``choose_leads(ranks)``, in the same order.
    """
    steady = find_steady(windows)
    leads = choose_leads(ranks)
    per, count_steps = _choose_unit(record, steady)
    figures = {
        f"{per}_s": _time_figure(record, per, _ratio(steady, _iteration_s, count_steps)),
        **_speed_figures(record, leads, steady),
        **_money_figures(record, steady),
        "goodput": _goodput_figure(record, steady),
    }
    return RunSummary(
        run_id=record.run.id[:_MAX_TEXT],
        name=record.run.name[:_MAX_TEXT],
        outcome=record.attempts[-1].outcome,
        num_attempts=len(record.attempts),
        setting=describe_setting(record, ranks),
        currency=record.cost.currency,
        token_basis=record.cost.token_basis or _basis(record),
        per=per,
        samples_per_step=_samples_per_step(record),
        num_windows=len(steady.windows),
        num_startup_windows=steady.num_startup,
        num_warmup_windows=steady.num_warmup,
        figures=figures,
        phases=_phase_figures(steady, count_steps),
        findings=[
            FindingSeen(
                name=finding.name,
                severity=finding.severity,
                money_per_hour=finding.money_per_hour,
            )
            for finding in record.findings[:_MAX_FINDINGS]
        ],
        undecided=[each.name for each in record.undecided[:_MAX_FINDINGS]],
        notes=_notes(record, steady),
    )


# What windows count.


def _iteration_s(window: WindowPart) -> float:
    return (window.iteration_mean_s or 0.0) * window.num_iterations


def _paid_s(window: WindowPart) -> float:
    return sum(window.phase_ns.values()) / NS_PER_S


def _counter(name: str) -> _Count:
    return lambda window: float(window.counts.get(name, 0))


def _iterations(window: WindowPart) -> float:
    return float(window.num_iterations)


def _phase_s(*names: str) -> _Count:
    return lambda window: sum(window.phase_ns.get(name, 0) for name in names) / NS_PER_S


def _ratio(steady: SteadyWindows, numerator: _Count, denominator: _Count) -> EstimatePart | None:
    pairs: list[Pair] = [(numerator(window), denominator(window)) for window in steady.windows]
    return estimate_ratio(pairs)


def _scaled(estimate: EstimatePart | None, factor: float) -> EstimatePart | None:
    if estimate is None:
        return None
    return estimate.model_copy(
        update={"value": estimate.value * factor, "error": estimate.error * factor}
    )


# Figures.


def _choose_unit(record: RunRecord, steady: SteadyWindows) -> tuple[_Unit, _Count]:
    steps = _counter("optimizer_steps")
    has_steps = bool(record.progress.optimizer_steps) and (
        not steady.windows or any(map(steps, steady.windows))
    )
    return ("step", steps) if has_steps else ("iteration", _iterations)


def _time_figure(record: RunRecord, per: str, steady: EstimatePart | None) -> FigurePart:
    if steady is not None:
        return FigurePart(value=steady.value, steady=steady)
    rate = record.rates.steps_per_s if per == "step" else record.rates.iterations_per_s
    if not rate:
        return FigurePart(unknown="no iteration has been timed: the first belongs to start-up")
    return FigurePart(value=1 / rate)


def _speed_figures(
    record: RunRecord, leads: Sequence[RankRecord], steady: SteadyWindows
) -> dict[str, FigurePart]:
    """Return rates of the job: those of the lead, times what the job makes of one of its ranks."""
    found = {}
    for count in ("tokens", "slots", "samples"):
        name = f"{count}_per_s"
        whole = getattr(record.rates, name)
        if not whole:
            continue
        own = getattr(leads[-1].rates, name) if leads else None
        estimate = _ratio(steady, _counter(count), _iteration_s)
        scaled = _scaled(estimate, whole / own) if own and estimate and estimate.value else None
        found[name] = FigurePart(value=whole if scaled is None else scaled.value, steady=scaled)
    if "tokens_per_s" in found:
        found.pop("slots_per_s", None)
    return found


def _money_figures(record: RunRecord, steady: SteadyWindows) -> dict[str, FigurePart]:
    cost, total_s = record.cost, record.time_s.get("total", 0.0)
    rate = None if cost.total is None or total_s <= 0 else float(cost.total) / total_s
    basis = cost.token_basis
    figures = {
        "cost_per_million_productive_tokens": (cost.per_million_productive_tokens, basis),
        "cost_per_million_tokens": (cost.per_million_tokens, basis),
        "cost_per_productive_step": (cost.per_productive_step, "optimizer_steps"),
    }
    # Money is told per token where tokens are counted, else per step.
    if basis is not None:
        figures.pop("cost_per_productive_step")
    elif cost.total is not None:
        figures = {name: told for name, told in figures.items() if "tokens" not in name}
    found = {}
    for name, (exact, count) in figures.items():
        factor = _MILLION if "million" in name else 1
        estimate = None
        if rate is not None and count is not None:
            # Every rank pays for its own time, and the job makes num_ranks times the lead's tokens;
            # its steps are made by all together.
            num_paid = len(record.ranks) if count == "optimizer_steps" else 1
            estimate = _scaled(_ratio(steady, _paid_s, _counter(count)), rate * factor * num_paid)
        if exact is not None:
            found[name] = FigurePart(value=float(exact), exact=exact, steady=estimate)
        else:
            found[name] = FigurePart(unknown=_why_no_money(record, name)[:_MAX_TEXT])
    return found


def _why_no_money(record: RunRecord, name: str) -> str:
    if record.cost.total is None:
        several = "prices are in several currencies" if record.cost.by_currency else None
        return record.cost.unknown or several or "there is no price"
    if "tokens" in name and not getattr(record.progress, record.cost.token_basis or "tokens"):
        return "no token was counted"
    return "how many steps survived is not known" if "productive" in name else "nothing was counted"


def _goodput_figure(record: RunRecord, steady: SteadyWindows) -> FigurePart:
    share = record.goodput.share
    if share is None:
        return FigurePart(unknown="how many steps survived is not known")
    return FigurePart(value=share, steady=_ratio(steady, _phase_s(*_PRODUCTIVE), _paid_s))


def _phase_figures(steady: SteadyWindows, count_steps: _Count) -> dict[str, FigurePart]:
    found = {}
    for phase in COMPARED_PHASES:
        name = phase.name.lower()
        estimate = _ratio(steady, _phase_s(name), count_steps)
        if estimate is not None and estimate.value > 0:
            found[name] = FigurePart(value=estimate.value, steady=estimate)
    return found


def _basis(record: RunRecord) -> Literal["tokens", "slots"] | None:
    if record.progress.tokens is not None:
        return "tokens"
    return None if record.progress.slots is None else "slots"


def _samples_per_step(record: RunRecord) -> float | None:
    samples, steps = record.progress.samples, record.progress.optimizer_steps
    return samples / steps if samples and steps else None


def _notes(record: RunRecord, steady: SteadyWindows) -> list[str]:
    notes = []
    if record.attempts[-1].outcome is Outcome.RUNNING:
        notes.append("it is still running: these are its figures so far")
    if record.run.debug:
        notes.append(f"a debug run: {record.run.debug}"[:_MAX_TEXT])
    if len(steady.windows) < MIN_WINDOWS:
        notes.append(
            f"{len(steady.windows)} windows of steady training do not tell its noise, "
            f"{MIN_WINDOWS} would; COSTLENS_WINDOW_S makes windows of a short run shorter"
        )
    if record.cost.is_partial:
        notes.append("a part of it has no known price, and is in no figure of money")
    if record.problems:
        notes.append(f"{len(record.problems)} problems: costlens report names them")
    return notes
