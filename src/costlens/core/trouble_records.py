"""What a rank's record says of trouble: a thread that stands still, and what is known of a bad end.

``observe/liveness.py``, ``observe/oom.py`` and ``observe/last_words.py`` fill it. Absent means
unknown, never zero.
"""

from __future__ import annotations

from pydantic import Field

from costlens.core.part import Part, Seconds, UnixTime

__all__ = ["LastWordsPart", "OomPart", "StallPart"]


class StallPart(Part):
    """The training thread has shown no sign of life for longer than it should take."""

    phase: str
    since: UnixTime = Field(description="Unix time of the last sign of life.")
    age_s: Seconds
    limit_s: Seconds = Field(description="From what age on it counts as a stall.")
    stack: list[str] = Field(
        default_factory=list,
        description="Where the training thread stood, innermost first; code locations only.",
    )


class OomPart(Part):
    """The count of out-of-memory kills in the rank's cgroup."""

    path: str = Field(description="The file that the kernel keeps the count in.")
    start_count: int = Field(description="The count when watching began.")
    count: int = Field(description="The count at the heartbeat.")


class LastWordsPart(Part):
    """What is known of a bad end; neither messages of exceptions nor arguments are kept."""

    error_type: str | None = None
    exit_code: int | None = None
    signal: str | None = None
    stack: list[str] = Field(
        default_factory=list,
        description="Where the error was raised, innermost first; code locations only.",
    )
    oom_kills: int | None = Field(
        None,
        description="Processes of the rank's cgroup that were killed for lack of memory since "
        "watching began.",
    )
    nonfinite: str | None = Field(
        None, description="The first quality metric that was not a finite number."
    )
    nonfinite_iteration: int | None = None
    xid: int | None = Field(None, description="The driver's last error code of the GPU.")
    flight_recorder: str | None = Field(
        None, description="The dump of torch's record of collectives, where it wrote one."
    )
