"""What watching itself did, lost and cost over the ranks and attempts of a run: pure.

``account/ledger.py`` puts it into the merged record. The signals are those that any rank exports.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from costlens.core.records import RankRecord
from costlens.core.telemetry_records import DetailPart, ExportHealth, TelemetryPart

__all__ = ["merge_telemetry"]


def merge_telemetry(records: Sequence[RankRecord]) -> TelemetryPart:
    """Return the sums over all records, and the detail of spans in force in the newest attempt.

    Args:
        records: One per attempt and rank, at least one.
    """
    parts = [record.telemetry for record in records]
    faults: Counter[str] = Counter()
    signals: dict[str, list[ExportHealth]] = {}
    for part in parts:
        faults.update(part.faults)
        for signal, health in part.exports.items():
            signals.setdefault(signal, []).append(health)
    return TelemetryPart(
        faults=dict(sorted(faults.items())),
        rows_dropped=sum(part.rows_dropped for part in parts),
        spans_dropped=sum(part.spans_dropped for part in parts),
        quality_dropped=sum(part.quality_dropped for part in parts),
        values_dropped=sum(part.values_dropped for part in parts),
        record_failures=sum(part.record_failures for part in parts),
        overhead_s=sum(part.overhead_s for part in parts),
        exports={signal: _merge_health(signals[signal]) for signal in sorted(signals)},
        num_windows=sum(part.num_windows for part in parts),
        num_segments=sum(part.num_segments for part in parts),
        iterations_unresolved=sum(part.iterations_unresolved for part in parts),
        detail=_merge_detail(records),
        control_failures=sum(part.control_failures for part in parts),
    )


def _merge_detail(records: Sequence[RankRecord]) -> DetailPart | None:
    newest = max(record.attempt.number for record in records)
    own = [record.telemetry.detail for record in records if record.attempt.number == newest]
    return max((part for part in own if part), key=lambda part: part.until or 0.0, default=None)


def _merge_health(parts: Sequence[ExportHealth]) -> ExportHealth:
    # State and error of the rank that fares worst: a mean of states says nothing.
    worst = max(parts, key=lambda part: (part.exports_failed, part.items_dropped))
    return ExportHealth(
        state=worst.state,
        exports_ok=sum(part.exports_ok for part in parts),
        exports_failed=sum(part.exports_failed for part in parts),
        items_dropped=sum(part.items_dropped for part in parts),
        last_error_type=worst.last_error_type,
    )
