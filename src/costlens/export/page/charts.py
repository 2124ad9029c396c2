"""Pieces of Vega-Lite specifications that several charts share. Pure.

Colours are CSS variables, so that one drawing serves light and dark pages (``colours.css``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = [
    "COLUMN_X",
    "Spec",
    "band",
    "colour",
    "follow",
    "hover",
    "quantity",
    "scale_of",
    "tip",
]

Spec = dict[str, Any]

_MOMENTS = {
    "year": "%Y",
    "month": "%b %Y",
    "date": "%d %b",
    "hours": "%H:%M",
    "minutes": "%H:%M",
    "seconds": "%H:%M:%S",
    "milliseconds": "%S.%L",
}

COLUMN_X: Spec = {
    "x": {
        "field": "a",
        "type": "temporal",
        "scale": {"type": "utc"},
        "axis": {"title": None, "grid": False, "format": _MOMENTS, "labelSeparation": 8},
    },
    "x2": {"field": "b"},
}
"""From where a column begins to where it ends, in UTC."""


def colour(name: str) -> str:
    """Return the colour of that name, such as ``phase-forward``, as SVG takes it."""
    return f"var(--{name.replace('_', '-')})"


def quantity(field: str, title: str | None = None, **more: Any) -> Spec:
    """Return the encoding of a quantitative field; ``more`` goes into it as it is."""
    return {"field": field, "type": "quantitative", "title": title, **more}


def tip(fields: Mapping[str, tuple[str, str]]) -> list[Spec]:
    """Return what a pointer over a mark shows.

    Args:
        fields: Title and format by field; an empty format is text, ``time`` a moment in UTC.
    """
    return [_tip(field, title, how) for field, (title, how) in fields.items()]


def _tip(field: str, title: str, how: str) -> Spec:
    if how == "time":
        how = "%Y-%m-%d %H:%M:%S"
        utc = {"type": "temporal", "scale": {"type": "utc"}, "format": how}
        return {"field": field, "title": title, **utc}
    if not how:
        return {"field": field, "title": title, "type": "nominal"}
    return {"field": field, "title": title, "type": "quantitative", "format": how}


def hover(fields: Mapping[str, tuple[str, str]], x: Spec | None = None) -> Spec:
    """Return a layer that shades the column under the pointer and tells its values."""
    return {
        "params": [
            {
                "name": "column",
                "select": {"type": "point", "on": "pointerover", "clear": "pointerout"},
            }
        ],
        "mark": {"type": "rect", "fill": colour("text")},
        "encoding": {
            **(COLUMN_X if x is None else x),
            "fillOpacity": {
                "condition": {"param": "column", "empty": False, "value": 0.12},
                "value": 0,
            },
            "tooltip": tip(fields),
        },
    }


def follow(field: str, hue: str, *, y: Spec, is_dotted: bool = False) -> Spec:
    """Return a layer with a line through the middles of the columns, one an attempt."""
    point = {"point": {"fill": colour(hue), "size": 24}} if is_dotted else {}
    return {
        "transform": [{"filter": f"isValid(datum.{field})"}],
        "mark": {"type": "line", "stroke": colour(hue), "strokeWidth": 1.75, **point},
        "encoding": {
            "x": {**COLUMN_X["x"], "field": "m"},
            "y": y,
            "detail": {"field": "t", "type": "nominal"},
        },
    }


def band(least: str, most: str, hue: str, *, y: Spec) -> Spec:
    """Return a layer that fills each column from its least to its greatest value."""
    return {
        "transform": [{"filter": f"isValid(datum.{least}) && isValid(datum.{most})"}],
        "mark": {"type": "rect", "fill": colour(hue), "fillOpacity": 0.22},
        "encoding": {**COLUMN_X, "y": {**y, "field": least}, "y2": {"field": most}},
    }


def scale_of(names: Sequence[str], prefix: str) -> Spec:
    """Return the colour scale of names whose colours are called after them."""
    return {"domain": [*names], "range": [colour(f"{prefix}-{name}") for name in names]}
