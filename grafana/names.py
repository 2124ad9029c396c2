"""Prometheus names of the metric catalogue, and selectors that cannot name what nobody exports.

The translation is OpenTelemetry's own ("Prometheus and OpenMetrics compatibility"); a test holds it
against what a scrape of the real exporter shows.
"""

from __future__ import annotations

import re

from costlens.export.catalog import METRICS, RANK, RUN_ID, Kind, Metric

__all__ = ["label_name", "select", "series_names", "translate"]

_UNITS = {
    "s": "seconds",
    "By": "bytes",
    "J": "joules",
    "W": "watts",
    "Cel": "celsius",
    "Hz": "hertz",
}
_PER_UNITS = {"s": "second", "m": "minute", "h": "hour"}
_PARTS = ("bucket", "count", "sum")
_MATCHER = re.compile(r'\s*([a-z_]+)\s*(=~|!~|!=|=)\s*"([^"]*)"\s*')

# OpenTelemetry named it with unit 1: a server adds the suffix, a scraped exporter does not.
_TWO_NAMES = {"hw_gpu_utilization_ratio": "hw_gpu_utilization"}

_BY_NAME = {metric.name: metric for metric in METRICS}


def translate(name: str, unit: str, kind: Kind) -> str:
    """Return the name that a Prometheus server gives a metric which arrives by OTLP."""
    tokens = [token for token in re.split(r"[^a-zA-Z0-9:]+", name) if token]
    main, _, per = re.sub(r"\{[^}]*\}", "", unit).partition("/")
    main, per = _UNITS.get(main, main), _PER_UNITS.get(per, per)
    if main and main != "1" and main not in tokens:
        tokens.append(main)
    if per and per not in tokens:
        tokens += ["per", per]
    if kind == "counter":
        tokens = [token for token in tokens if token != "total"] + ["total"]
    if kind == "gauge" and unit == "1":
        tokens = [token for token in tokens if token != "ratio"] + ["ratio"]
    return "_".join(tokens)


def series_names(metric: Metric) -> set[str]:
    """Return the series names that a metric has by OTLP."""
    name = translate(metric.name, metric.unit, metric.kind)
    return {f"{name}_{part}" for part in _PARTS} if metric.kind == "histogram" else {name}


def label_name(attribute: str) -> str:
    """Return the label of an attribute."""
    return attribute.replace(".", "_")


def select(metric: str, *matchers: str, part: str = "") -> str:
    """Return a selector of a metric's series.

    Args:
        metric: Its OpenTelemetry name.
        matchers: Label matchers, each one or several with commas; empty ones are left out.
        part: ``bucket``, ``count`` or ``sum`` of a histogram.

    Raises:
        ValueError: The catalogue has no such metric, or the metric no such label or value.
    """
    entry = _BY_NAME.get(metric)
    if entry is None:
        raise ValueError(f"{metric!r} is no metric of the catalogue, see docs/metrics.md")
    if (entry.kind == "histogram") != bool(part) or (part and part not in _PARTS):
        raise ValueError(f"{metric} is a {entry.kind}; part={part!r} does not go with it")
    name = translate(entry.name, entry.unit, entry.kind) + (f"_{part}" if part else "")
    joined = ",".join(matcher for matcher in matchers if matcher)
    _check_matchers(entry, joined)
    if name in _TWO_NAMES:
        both = f'__name__=~"{_TWO_NAMES[name]}(_ratio)?"'
        return f"{{{both},{joined}}}" if joined else f"{{{both}}}"
    return f"{name}{{{joined}}}" if joined else name


def _check_matchers(metric: Metric, matchers: str) -> None:
    allowed = {label_name(name): values for name, values in metric.attributes.items()}
    allowed |= {label_name(RUN_ID): (), label_name(RANK): ()}
    rest = matchers
    while rest:
        found = _MATCHER.match(rest)
        if found is None:
            raise ValueError(f'{rest!r} is no label matcher; write label="value"')
        label, operator, value = found.groups()
        rest = rest[found.end() :].removeprefix(",")
        if label not in allowed:
            raise ValueError(f"{metric.name} has no label {label}; it has {sorted(allowed)}")
        values = value.split("|") if "~" in operator else [value]
        unknown = [
            v for v in values if allowed[label] and "$" not in v and not _fits(v, label, allowed)
        ]
        if unknown:
            raise ValueError(f"{label} is never {unknown}; it is one of {allowed[label]}")


def _fits(value: str, label: str, allowed: dict[str, tuple[str, ...]]) -> bool:
    return value == "" or any(re.fullmatch(value, known) for known in allowed[label])
