"""What the pipeline hands to every exporter once a window, and what an exporter is.

The window that closed, the rank's record so far, and the anchor that places both in wall time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from costlens.core.checkpoint_records import SaveNote
from costlens.core.clock import Anchor
from costlens.core.quality import Observation, Quality
from costlens.core.records import RankRecord
from costlens.core.window import Histogram, Window

__all__ = ["Exporter", "Snapshot"]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of one rank at the close of a window.

    Args:
        record: The rank's record; exporters read their numbers from it, so that all of them tell
            the same story.
        window: The window that just closed.
        histogram: Cumulative iteration durations.
        quality: Quality metrics, over the attempt and in this window.
        alarms: Quality metrics that turned non-finite for the first time.
        anchor: Turns monotonic nanoseconds into wall time.
        settled_ns: Nanoseconds per phase that will not be booked differently any more (iterations
            whose device events are outstanding are left out), so that exported counters never go
            back.
        is_last: Whether the attempt ends with this snapshot.
        saves: Saves that have ended since the last snapshot.
    """

    record: RankRecord
    window: Window
    histogram: Histogram
    quality: Quality
    alarms: tuple[Observation, ...]
    anchor: Anchor
    settled_ns: tuple[int, ...]
    is_last: bool = False
    saves: tuple[SaveNote, ...] = ()


class Exporter(Protocol):
    """Something that carries snapshots out of the process, on the pipeline thread.

    An exporter must bound its own memory and time; what it raises is contained and counted by the
    pipeline.
    """

    name: str

    def start(self, snapshot: Snapshot) -> None:
        """Take the first look, before the first window has closed: announce the run."""

    def export(self, snapshot: Snapshot) -> None:
        """Take a closed window; called once a window, and once more with ``is_last``."""

    def finish(self, deadline_ns: int) -> None:
        """Flush and close, giving up at the monotonic time ``deadline_ns``."""
