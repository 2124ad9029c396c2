"""How the exporters fare, added up for the record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from costlens.core.snapshot import Exporter
from costlens.core.telemetry_records import ExportHealth

__all__ = ["ExportersHealth", "gather_health"]


@dataclass(slots=True)
class ExportersHealth:
    """Counts of all exporters together; an exporter tells what it has.

    Args:
        signals: The health of each signal.
        num_failures: Writes of the record that failed.
        num_segments: Segments written.
        num_spans_dropped: Spans that no limit let through.
        cpu_s: CPU seconds of the exporters' own threads.
    """

    signals: dict[str, ExportHealth] = field(default_factory=dict)
    num_failures: int = 0
    num_segments: int = 0
    num_spans_dropped: int = 0
    cpu_s: float = 0.0


def gather_health(exporters: Sequence[Exporter]) -> ExportersHealth:
    """Return how the exporters fare; any thread, no I/O."""
    found = ExportersHealth()
    for exporter in exporters:
        found.signals.update(getattr(exporter, "health", dict)() or {})
        found.num_failures += getattr(exporter, "num_failures", 0)
        found.num_segments += getattr(exporter, "num_segments", 0)
        found.num_spans_dropped += getattr(exporter, "num_spans_dropped", 0)
        found.cpu_s += getattr(exporter, "cpu_s", 0.0)
    return found
