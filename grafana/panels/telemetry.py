"""Can one trust the numbers: what was sent, what was dropped, and what watching costs."""

from __future__ import annotations

from grafana.panel import Panel, prom
from grafana.queries import RANK, THE_RANKS, increase, rate

__all__ = ["DROPPED", "EXPORTS", "FAULTS", "OVERHEAD", "RECORDS"]

EXPORTS = Panel(
    "Do exports get through?",
    "Exports of each signal by how they ended, from point to point. Failures that never reach this "
    "page show as old heartbeats.",
    "none",
    (
        prom(
            "sum by (costlens_signal, costlens_export_outcome) "
            f"({increase('costlens.telemetry.exports', THE_RANKS)})",
            "{{costlens_signal}} {{costlens_export_outcome}}",
        ),
    ),
    decimals=0,
    least=0,
)
DROPPED = Panel(
    "Is anything dropped?",
    "Iterations, spans, quality values and exported items that were dropped, by the limit or "
    "signal that dropped them. Totals stay right; detail is missing. An alert fires when it goes "
    "on.",
    "none",
    (
        prom(
            f"sum by (costlens_drop_place) ({increase('costlens.telemetry.dropped', THE_RANKS)})",
            "{{costlens_drop_place}}",
        ),
    ),
    decimals=0,
    least=0,
)
FAULTS = Panel(
    "Does costlens itself fail?",
    "Faults of costlens that it kept from the training, by the part they happened in. Each is a "
    "bug worth a report.",
    "none",
    (
        prom(
            f"sum by (costlens_fault_place) ({increase('costlens.telemetry.faults', THE_RANKS)})",
            "{{costlens_fault_place}}",
        ),
    ),
    decimals=0,
    least=0,
)
RECORDS = Panel(
    "Is the record written?",
    "Writes of the rank's record that failed. The record is what `costlens report` reads.",
    "none",
    (
        prom(
            f"sum by ({RANK}) ({increase('costlens.record.failures', THE_RANKS)})",
            "rank {{costlens_rank}}",
        ),
    ),
    decimals=0,
    least=0,
)
OVERHEAD = Panel(
    "What does watching cost?",
    "CPU time of the thread that aggregates and exports, over the time of the rank. Above the line "
    "an alert fires.",
    "percentunit",
    (
        prom(
            f"sum by ({RANK}) ({rate('costlens.telemetry.overhead.time', THE_RANKS)}) / "
            f"(sum by ({RANK}) ({rate('costlens.phase.time', THE_RANKS)}) > 0)",
            "rank {{costlens_rank}}",
        ),
    ),
    limit="overhead_ratio",
    decimals=2,
    least=0,
)
