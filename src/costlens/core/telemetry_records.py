"""What a rank's record says of watching itself: what it did, lost and cost, and how much it shows.

``assembly.py`` fills it with what ``export/health.py`` gathers; ``account/telemetry.py`` merges it
over ranks. Absent means unknown, never zero.
"""

from __future__ import annotations

from enum import Enum

from pydantic import Field

from costlens.core.part import Part, UnixTime

__all__ = ["Detail", "DetailPart", "ExportHealth", "TelemetryPart"]


class Detail(str, Enum):
    """Which iterations get spans.

    ``off`` gives none, ``normal`` those that the settings ask for, and ``steps`` every one as far
    as the hourly limit on spans goes.
    """

    OFF = "off"
    NORMAL = "normal"
    STEPS = "steps"


class DetailPart(Part):
    """How much detail spans show, and until when; see ``costlens tune``."""

    name: Detail
    until: UnixTime | None = Field(
        None, description="Unix time at which it is normal again; absent where it is."
    )


class ExportHealth(Part):
    """How one telemetry signal fares."""

    state: str
    exports_ok: int = 0
    exports_failed: int = 0
    items_dropped: int = 0
    last_error_type: str | None = None


class TelemetryPart(Part):
    """What watching itself did, lost and cost."""

    faults: dict[str, int] = Field(
        default_factory=dict, description="Contained faults of costlens, by place."
    )
    rows_dropped: int = 0
    spans_dropped: int = 0
    quality_dropped: int = 0
    values_dropped: int = Field(
        0, description="Counts, metrics and gaps of a device that could not be taken."
    )
    record_failures: int = 0
    overhead_s: float = Field(
        0.0, description="CPU seconds of our own threads; the training thread's is benchmarked."
    )
    exports: dict[str, ExportHealth] = Field(default_factory=dict)
    num_windows: int = 0
    num_segments: int = 0
    iterations_unresolved: int = Field(
        0, description="Iterations whose device events have not finished, or never came."
    )
    detail: DetailPart | None = Field(
        None, description="The detail of spans in force; merged: the rank's that ends last."
    )
    control_failures: int = Field(
        0, description="Times that what is asked of the running run could not be read."
    )
