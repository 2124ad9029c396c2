"""The section on how long iterations take: over the run, and how that is distributed. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from costlens.core.clock import NS_PER_S
from costlens.core.run_record import RunRecord
from costlens.core.training_records import IterationTimePart
from costlens.core.window import Sketch
from costlens.export.figures import show_count, show_duration, show_rate
from costlens.export.page.charts import Spec, band, colour, follow, hover, quantity, tip
from costlens.export.page.parts import Cell, Chart, Figure, Section, Table, known, unknown
from costlens.export.page.rows import Rows

__all__ = ["describe_speed"]

_MAX_BARS = 120
_RATES = {
    "iterations_per_s": "iterations/s",
    "steps_per_s": "optimizer steps/s",
    "samples_per_s": "samples/s",
    "tokens_per_s": "tokens/s",
    "slots_per_s": "token slots/s",
}
_FEW = 60
_MAX_INDEX = 2500  # beyond a thousand years


def describe_speed(record: RunRecord, rows: Rows) -> Section:
    """Return the section: durations of iterations of the newest attempt, all ranks together."""
    key, title = "speed", "Iteration time"
    part = record.iteration_time
    if not part.count:
        why = "no iteration has been timed: the first one belongs to start-up"
        return Section(key, title, unknown=why)
    charts = [*_draw_bins(part), *([_draw_course(rows)] if rows.has_iterations else [])]
    return Section(
        key,
        title,
        lead=_lead(part),
        charts=charts,
        tables=[_tabulate(record)],
        notes=["The first iteration, saves and evaluation are no part of it."],
    )


def _lead(part: IterationTimePart) -> str:
    told = {"half of them take up to": part.median_s, "99 in 100 up to": part.p99_s}
    known_s = [f"{words} {show_duration(s)}" for words, s in told.items() if s is not None]
    return f"{show_count(part.count)} iterations of the newest attempt: {', '.join(known_s)}."


def _draw_bins(part: IterationTimePart) -> Iterable[Chart]:
    bars = _bars(part.sketch)
    if not bars:
        return
    unit_s = 1.0 if part.median_s is not None and part.median_s >= 1 else 1e-3
    unit = "s" if unit_s == 1.0 else "ms"
    marks = [
        {"at": s / unit_s, "name": name} for name, s in _quantiles(part).items() if s is not None
    ]
    title = f"duration ({unit}, logarithmic)"
    spec: Spec = {
        "height": 200,
        "layer": [
            _rectangles(
                [{"low": lo / unit_s, "high": hi / unit_s, "n": n} for lo, hi, n in bars],
                unit,
                title,
            ),
            {
                "data": {"values": marks},
                "mark": {"type": "rule", "stroke": colour("text"), "strokeDash": [4, 3]},
                "encoding": {"x": quantity("at", title)},
            },
            *(_label(mark, row, title) for row, mark in enumerate(marks)),
        ],
    }
    said = ", ".join(
        f"{name} {show_duration(s)}" for name, s in _quantiles(part).items() if s is not None
    )
    yield Chart("bins-chart", "Iterations by duration", f"Of all iterations: {said}.", spec)


def _rectangles(values: list[Spec], unit: str, title: str) -> Spec:
    """Return the layer with a rectangle for each bin."""
    scale = {"type": "log", "nice": False}
    told = {
        "low": (f"from ({unit})", ".4~g"),
        "high": (f"to ({unit})", ".4~g"),
        "n": ("iterations", ",d"),
    }
    return {
        "data": {"values": values},
        "mark": {"type": "rect", "fill": colour("accent"), "fillOpacity": 0.85},
        "encoding": {
            "x": quantity("low", title, scale=scale, axis={"format": ",.4~g"}),
            "x2": {"field": "high"},
            "y": quantity("zero", axis={"format": ",d", "tickCount": 4}),
            "y2": {"field": "n"},
            "tooltip": tip(told),
        },
        "transform": [{"calculate": "0", "as": "zero"}],
    }


def _label(mark: Spec, row: int, title: str) -> Spec:
    place = {"align": "left", "baseline": "top", "dx": 4, "dy": 14 * row, "fill": colour("text")}
    return {
        "data": {"values": [mark]},
        "mark": {"type": "text", **place},
        "encoding": {"x": quantity("at", title), "y": {"value": 0}, "text": {"field": "name"}},
    }


def _quantiles(part: IterationTimePart) -> Mapping[str, float | None]:
    return {"median": part.median_s, "p90": part.p90_s, "p99": part.p99_s}


def _bars(sketch: Mapping[int, int]) -> list[tuple[float, float, int]]:
    """Return from, to (seconds) and count of each bar; some bins of the sketch make one."""
    # A file may hold anything.
    sound = {i: n for i, n in sketch.items() if 0 <= i <= _MAX_INDEX and n > 0}
    if not sound:
        return []
    size = 1 + (max(sound) - min(sound)) // _MAX_BARS
    counts: Counter[int] = Counter()
    for index, count in sound.items():
        counts[(index - 1) // size] += count
    bars = []
    for bar in sorted(counts):
        low, high = (Sketch.bound_ns(edge * size) / NS_PER_S for edge in (bar, bar + 1))
        bars.append((low, high, counts[bar]))
    return bars


def _draw_course(rows: Rows) -> Chart:
    axis = {"format": ",.4~g", "tickCount": 4, "grid": False}
    y = quantity("i", axis=axis, scale={"type": "log", "nice": False})
    spec: Spec = {
        "data": {"name": "columns"},
        "height": 170,
        "layer": [
            band("i_least", "i_most", "accent", y=y),
            follow("i", "accent", y=y, is_dotted=len(rows.rows) <= _FEW),
            hover(
                {
                    "a": ("from", "time"),
                    "i": (f"mean ({rows.unit})", ",.4~g"),
                    "i_least": (f"fastest window ({rows.unit})", ",.4~g"),
                    "i_most": (f"slowest iteration ({rows.unit})", ",.4~g"),
                }
            ),
        ],
    }
    means = [row["i"] for row in rows.rows if row.get("i") is not None]
    said = f"Means of columns lie between {min(means):.4g} and {max(means):.4g} {rows.unit}."
    return Chart(
        "course-chart", f"Iteration time over the run ({rows.unit}, logarithmic)", said, spec
    )


def _tabulate(record: RunRecord) -> Table:
    part, rates = record.iteration_time, record.rates
    rows: list[list[Cell]] = []
    for name, seconds in _quantiles(part).items():
        path = f"iteration_time.{name}_s"
        rows.append([name, _figure(seconds, "too few iterations", show_duration, path)])
    for name, words in _RATES.items():
        rate = getattr(rates, name)
        rows.append([words, _figure(rate, "nobody counts them", show_rate, f"rates.{name}")])
    rows.append(
        ["iterations timed", known(show_count(part.count), part.count, "iteration_time.count")]
    )
    return Table("Iterations of the newest attempt", ("", "value"), rows)


def _figure(value: float | None, why: str, show: Callable[[float], str], path: str) -> Figure:
    return unknown(why, path) if value is None else known(show(value), value, path)
