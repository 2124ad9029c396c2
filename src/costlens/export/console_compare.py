"""Two runs side by side for people: figures, phases and findings, each with what it comes to.

Reads nothing but the comparison, so that the page and ``--json`` tell the same story.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from costlens.core.comparison_records import (
    ComparedFigure,
    ComparedFinding,
    Comparison,
    FigurePart,
    RunSummary,
)
from costlens.export.console_layout import Renderable, Row, join, lay_out, plural, section
from costlens.export.figures import (
    show_duration,
    show_money,
    show_rate,
    show_share,
    show_text,
)

__all__ = ["render_comparison"]

UNKNOWN = "–"
_STYLES = {"better": "bold green", "worse": "bold red", "not_comparable": "yellow"}
_LABELS = {
    "step_s": "time per step",
    "iteration_s": "time per iteration",
    "tokens_per_s": "tokens/s",
    "slots_per_s": "slots/s",
    "samples_per_s": "samples/s",
    "cost_per_million_productive_tokens": "/M productive tokens",
    "cost_per_million_tokens": "/M tokens",
    "cost_per_productive_step": "/productive step",
}
_MIN_SHOWN_SHARE = 0.005
_MAX_EXCESS = 9.995


@dataclass(frozen=True, slots=True)
class _Currencies:
    """Where the currency of an amount stands: at the head of its row, or beside each of two.

    Args:
        a: That of A; None unknown.
        b: That of B.
    """

    a: str | None = None
    b: str | None = None

    @property
    def _are_two(self) -> bool:
        return self.a is not None and self.b is not None and self.a != self.b

    @property
    def heading(self) -> str:
        return "" if self._are_two else self.a or self.b or ""

    @property
    def beside_amounts(self) -> tuple[str | None, str | None]:
        return (self.a, self.b) if self._are_two else (None, None)


def render_comparison(comparison: Comparison, console: Console) -> None:
    """Print two runs side by side.

    Args:
        comparison: What to show.
        console: Where to print.
    """
    console.print(Group(*_sections(comparison)), markup=False, highlight=False)


def _sections(comparison: Comparison) -> Iterable[Renderable]:
    a, b = comparison.a, comparison.b
    yield lay_out([("A", _describe(a)), ("B", _describe(b))])
    yield from section("The runs differ in", _differences(comparison))
    yield from section("Figures", _table(comparison.figures, _Currencies(a.currency, b.currency)))
    phases = _shown_phases(comparison.phases)
    if phases:
        yield from section(f"Time of {_article(a.per)} {a.per}", _table(phases, _Currencies()))
    yield from section("Findings", _findings(comparison))
    yield from section("To know", [Text(f"• {show_text(note)}") for note in comparison.notes])
    yield Text(f"\n{_conclude(comparison)}")
    yield Text(
        "± is a run's own noise, the 95 % interval of its windows; better and worse lie beyond "
        "what noise does to two like runs in one comparison of a hundred. Other machines and other "
        "days vary by more.",
        "dim",
    )


def _describe(run: RunSummary) -> str:
    left_out = {
        "of start-up or the end": run.num_startup_windows,
        "of warm-up": run.num_warmup_windows,
    }
    skipped = [f"{count} {what}" for what, count in left_out.items() if count]
    windows = plural(run.num_windows, "steady window") + (
        f" ({', '.join(skipped)} left out)" if skipped else ""
    )
    facts = (run.outcome.value, plural(run.num_attempts, "attempt"), windows)
    return show_text(f"{run.run_id}  {join(*facts)}")


def _differences(comparison: Comparison) -> Iterable[Renderable]:
    rows: list[Row] = [
        (show_text(name.replace("_", " ")), show_text(f"{here or UNKNOWN} → {there or UNKNOWN}"))
        for name, (here, there) in comparison.differences.items()
    ]
    if rows:
        yield lay_out(rows)


def _shown_phases(phases: Sequence[ComparedFigure]) -> list[ComparedFigure]:
    total = max(
        [sum(side or 0.0 for side in sides) for sides in zip(*map(_values, phases), strict=True)],
        default=0.0,
    )
    shown = [
        phase
        for phase in phases
        if max(side or 0.0 for side in _values(phase)) >= _MIN_SHOWN_SHARE * total
    ]
    return sorted(shown, key=lambda phase: -max(side or 0.0 for side in _values(phase)))


def _values(figure: ComparedFigure) -> tuple[float | None, float | None]:
    return figure.a.value, figure.b.value


def _table(figures: Sequence[ComparedFigure], currencies: _Currencies) -> Iterable[Renderable]:
    """Yield the figures side by side, and below them why some have no verdict."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("", no_wrap=True)
    for title in ("A", "B", "change"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    reasons: dict[str, list[str]] = {}
    beside_a, beside_b = currencies.beside_amounts
    for figure in figures:
        label = _label(figure, currencies)
        word = "refused" if figure.is_too_bad else figure.verdict.replace("_", " ")
        verdict = Text(word, "bold red" if figure.is_too_bad else _STYLES.get(figure.verdict, ""))
        if figure.reason:
            reasons.setdefault(figure.reason, []).append(label)
        table.add_row(
            label,
            _show_side(figure, figure.a, figure.noise_a, beside_a),
            _show_side(figure, figure.b, figure.noise_b, beside_b),
            _show_change(figure.change),
            verdict,
        )
    yield table
    for reason, labels in reasons.items():
        yield Text(f"• {', '.join(labels)}: {show_text(reason)}", "dim")


def _label(figure: ComparedFigure, currencies: _Currencies) -> str:
    label = _LABELS.get(figure.name, figure.name)
    return show_text(f"{currencies.heading}{label}" if figure.unit == "money" else label)


def _show_side(
    figure: ComparedFigure, side: FigurePart, noise: float | None, currency: str | None
) -> str:
    if figure.unit == "money" and currency is not None:
        return _show_value(side, figure.unit, currency)  # nobody weighs the two
    return f"{_show_value(side, figure.unit, None)}{_show_noise(noise)}"


def _show_value(figure: FigurePart, unit: str, currency: str | None) -> str:
    if figure.value is None:
        return UNKNOWN
    if unit == "money" and figure.exact is not None:
        return show_text(show_money(figure.exact, currency))
    if unit == "s":
        return show_duration(figure.value)
    return show_share(figure.value) if unit == "share" else show_rate(figure.value)


def _show_noise(noise: float | None) -> str:
    if noise is None:
        return ""
    percent = 100 * noise
    return " ±<0.1 %" if percent < 0.05 else f" ±{percent:.{0 if percent >= 9.95 else 1}f} %"


def _show_change(change: float | None) -> str:
    if change is None:
        return UNKNOWN
    if change > _MAX_EXCESS:
        return f"×{1 + change:,.0f}"
    return f"{100 * change:+.1f} %".replace("-", "\N{MINUS SIGN}")


def _findings(comparison: Comparison) -> Iterable[Renderable]:
    currencies = _Currencies(comparison.a.currency, comparison.b.currency)
    rows: list[Row] = [
        (each.change, _tell_finding(each, currencies)) for each in comparison.findings
    ]
    if rows:
        yield lay_out(rows)


def _tell_finding(finding: ComparedFinding, currencies: _Currencies) -> Text:
    seen = finding.b or finding.a
    # What is only told, such as a run that computes all the time, is neither good nor bad.
    is_told_only = seen is not None and seen.severity == "info"
    style = "" if is_told_only else {"new": "red", "gone": "green"}.get(finding.change, "")
    money = [
        UNKNOWN
        if side is None or side.money_per_hour is None
        else show_money(side.money_per_hour, currency)
        for side, currency in zip((finding.a, finding.b), currencies.beside_amounts, strict=True)
    ]
    per_hour = f"  {' → '.join(money)} an hour" if {*money} != {UNKNOWN} else ""
    return Text(show_text(finding.name) + show_text(per_hour), style)


def _conclude(comparison: Comparison) -> str:
    counted = {"worse": 0, "better": 0}
    for figure in comparison.figures:
        if figure.verdict in counted:
            counted[figure.verdict] += 1
    told = [f"{count} {verdict}" for verdict, count in counted.items() if count]
    text = f"B against A: {' and '.join(told) or _tell_none(comparison)}"
    if comparison.fail_above is None:
        return text
    allowed = show_share(comparison.fail_above)
    if comparison.too_bad:
        currencies = _Currencies(comparison.a.currency, comparison.b.currency)
        named = ", ".join(
            _label(each, currencies) for each in comparison.figures if each.is_too_bad
        )
        return f"{text}; worse by more than the {allowed} that is allowed: {named}"
    return f"{text}; none is worse by more than the {allowed} that is allowed"


def _tell_none(comparison: Comparison) -> str:
    unknown = [each for each in comparison.figures if each.verdict == "unknown"]
    is_open = any(each.a.value is not None and each.b.value is not None for each in unknown)
    return (
        "no figure is known to differ by more than noise does" if is_open else "no figure differs"
    )


def _article(noun: str) -> str:
    return "an" if noun[0] in "aeiou" else "a"
