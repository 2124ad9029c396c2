"""What the engine leaves behind of a rank: where its host stood, its iterations, and its meters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["DEVICE_METERS", "METERS", "Cut", "Trace"]

METERS = (
    *("busy_s", "sm_s", "tensor_s", "dram_s", "spin_s", "throttled_s"),
    *("worker_cpu_s", "main_cpu_s", "num_reads", "read_bytes", "read_s", "max_read_s"),
    *("num_batches", "load_s", "collate_s", "num_epochs", "first_wait_s", "start_wait_s"),
    *("copied_bytes", "reduced_bytes", "num_retries", "num_compiles", "compile_s"),
    *("sync_wait_s", "inline_read_s", "inline_dataset_s", "inline_collate_s", "queue_wait_s"),
    "stopped_s",
)
"""Sums of a rank since its start, in the order in which a trace holds them."""

DEVICE_METERS = frozenset(
    {"busy_s", "sm_s", "tensor_s", "dram_s", "spin_s", "throttled_s", "copied_bytes"}
)
"""Those that rise as the device works, and not as the host enqueues."""


class Cut(NamedTuple):
    """The end of an iteration.

    Args:
        at: Number of spans that lie before it.
        start_s: When it began.
        end_s: When it ended.
        gap_s: Time for which the device had nothing to do while the host waited for the batch.
        known_s: When the device had passed the events that tell this.
        steps: Optimizer steps so far.
        skipped: Steps so far that overflowed.
        samples: Samples so far.
        slots: Token positions so far.
        tokens: Tokens so far.
        begins_pass: Whether its batch was the first of a pass over the data.
    """

    at: int
    start_s: float
    end_s: float
    gap_s: float
    known_s: float
    steps: int
    skipped: int
    samples: int
    slots: int
    tokens: int
    begins_pass: bool


@dataclass(slots=True)
class Trace:
    """One rank of a run that is over; seconds on the one clock of the job.

    Args:
        rank: The rank.
        begin_s: When its process began.
        gang_wait_s: Its wait for the others; None without any.
        ready_s: When start-up came to the first fetch.
        spans: Phase and end of everything the host did, one after the other.
        cuts: Iterations.
        meter_times_s: When the meters were read.
        device_times_s: When the device had done what they showed then of it.
        meters: What they showed, in the order of ``METERS``.
        saves: Ends of the saves.
        validations: Ends of the validations.
        reduces: Ends of the all-reduces that DDP timed, with how long each held the rank up.
    """

    rank: int
    begin_s: float = 0.0
    gang_wait_s: float | None = None
    ready_s: float = 0.0
    spans: list[tuple[int, float]] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)
    meter_times_s: list[float] = field(default_factory=list)
    device_times_s: list[float] = field(default_factory=list)
    meters: list[tuple[float, ...]] = field(default_factory=list)
    saves: list[float] = field(default_factory=list)
    validations: list[float] = field(default_factory=list)
    reduces: list[tuple[float, float]] = field(default_factory=list)

    @property
    def end_s(self) -> float:
        """Return when it ended."""
        return self.spans[-1][1]
