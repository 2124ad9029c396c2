"""What an entry of the metric catalogue is; each page of the catalogue is a table of these."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from costlens.core.quality import MAX_NAMES
from costlens.core.window import ITERATION_BOUNDS_S
from costlens.export.readings import Read

__all__ = ["NUM_OWN_VALUES", "Kind", "Metric"]

Kind = Literal["counter", "updowncounter", "gauge", "histogram"]

NUM_OWN_VALUES: Mapping[str, int] = {"costlens.quality.name": MAX_NAMES}
"""How many values a run may give to an attribute without a closed list; 1 if not named here."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Args:
        name: Its OpenTelemetry name, in the words of the glossary and without a unit.
        kind: How its values combine.
        unit: UCUM unit; empty for a state, ``1`` for a ratio, whose name then ends in ``.ratio``.
        description: What it says, in one sentence.
        read: Yields attributes and value of each point that a snapshot knows.
        attributes: Allowed values of each attribute beside run id and rank; an empty tuple where
            the run gives its own (see ``NUM_OWN_VALUES``).
        since: What a counter counts from.
        bounds_s: Upper bounds of a histogram's buckets.
        num_own: Most values of an attribute in this metric, where ``NUM_OWN_VALUES`` is too many.
    """

    name: str
    kind: Kind
    unit: str
    description: str
    read: Read
    attributes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    since: Literal["attempt", "process"] = "attempt"
    num_own: Mapping[str, int] = field(default_factory=dict)
    bounds_s: tuple[float, ...] = ITERATION_BOUNDS_S

    @property
    def max_series(self) -> int:
        """Return the most series one rank can have of this metric, as Prometheus counts them."""
        num_sets = math.prod(
            self.num_own.get(name) or len(values) or NUM_OWN_VALUES.get(name, 1)
            for name, values in self.attributes.items()
        )
        # A histogram is a series per bound, one for +Inf, the sum and the count.
        return num_sets * (len(self.bounds_s) + 3 if self.kind == "histogram" else 1)
