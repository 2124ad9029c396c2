"""Books what ending a run took after its record was made."""

from __future__ import annotations

from typing import Any

from costlens.core.records import RankRecord
from costlens.core.telemetry_records import TelemetryPart

__all__ = ["lengthen_shutdown"]


def lengthen_shutdown(
    record: RankRecord, added_ns: int, *, end_time: float, telemetry: TelemetryPart
) -> RankRecord:
    """Return the record with a longer ``shutdown``; its phases still sum to its total.

    Args:
        record: The last record of an attempt.
        added_ns: Nanoseconds that the end took since it was made, >= 0.
        end_time: Unix time of the end.
        telemetry: How watching fared, up to the end.
    """

    def lengthen(phases_ns: dict[str, int]) -> dict[str, int]:
        return {**phases_ns, "shutdown": phases_ns["shutdown"] + added_ns}

    update: dict[str, Any] = {
        "telemetry": telemetry,
        "total_ns": record.total_ns + added_ns,
        "time_ns": lengthen(record.time_ns),
        "attempt": record.attempt.model_copy(
            update={"end_time": end_time, "heartbeat_time": end_time}
        ),
    }
    if record.host_ns is not None:
        update["host_ns"] = lengthen(record.host_ns)
    return record.model_copy(update=update)
