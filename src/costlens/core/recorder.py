"""The training thread's notebook: one fixed-size row per iteration in a preallocated ring.

A row holds cumulative numbers only, so a dropped row costs detail, never a total. Rows are packed
into a bytearray that never grows: lists inside tuples made the garbage collector stall training for
250 ms, and a ring of 65k tuples costs 50 MiB.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from costlens.core.phases import NUM_PHASES, Phase
from costlens.core.timeline import Timeline

__all__ = ["UNKNOWN", "Counters", "Recorder", "Row"]

UNKNOWN = -1
"""Marks a counter nobody has reported: absent, not zero (DESIGN law 3)."""

_NUM_HEAD = 11
_ROW = struct.Struct(f"<{_NUM_HEAD + NUM_PHASES}q")


class Row(NamedTuple):
    """One finished iteration; every count and the phases are cumulative since the start of the attempt.

    Args:
        number: Number of the iteration in this attempt, from 0.
        start_ns: Monotonic start: the fetch of its batch, or the end of the iteration before.
        end_ns: Monotonic end.
        micro_batches: Training-step calls.
        optimizer_steps: Optimizer updates that changed parameters.
        skipped_steps: Optimizer updates that a gradient scaler skipped.
        samples: Samples; ``UNKNOWN`` while never reported, like the next three.
        slots: Token positions, padding included.
        tokens: Non-padding tokens.
        loss_tokens: Tokens the loss was computed on.
        context: A small number the doorway gave this iteration (epoch), or ``UNKNOWN``.
        phase_ns: Nanoseconds per phase.
    """

    number: int
    start_ns: int
    end_ns: int
    micro_batches: int
    optimizer_steps: int
    skipped_steps: int
    samples: int
    slots: int
    tokens: int
    loss_tokens: int
    context: int
    phase_ns: tuple[int, ...]


class Counters:
    """Running counts of an attempt; plain attributes that only the training thread writes."""

    __slots__ = (
        "iterations",
        "loss_tokens",
        "micro_batches",
        "optimizer_steps",
        "samples",
        "skipped_steps",
        "slots",
        "test_batches",
        "tokens",
        "validation_batches",
    )

    def __init__(self) -> None:
        self.iterations = 0
        self.micro_batches = 0
        self.optimizer_steps = 0
        self.skipped_steps = 0
        self.samples = UNKNOWN
        self.slots = UNKNOWN
        self.tokens = UNKNOWN
        self.loss_tokens = UNKNOWN
        self.validation_batches = 0
        self.test_batches = 0

    def add_samples(self, count: int) -> None:
        """Add observed samples, >= 0."""
        self.samples = count if self.samples < 0 else self.samples + count

    def add_slots(self, count: int) -> None:
        """Add observed token positions, padding included, >= 0."""
        self.slots = count if self.slots < 0 else self.slots + count

    def add_tokens(self, count: int) -> None:
        """Add observed non-padding tokens, >= 0."""
        self.tokens = count if self.tokens < 0 else self.tokens + count

    def add_loss_tokens(self, count: int) -> None:
        """Add tokens that the loss was computed on, >= 0."""
        self.loss_tokens = count if self.loss_tokens < 0 else self.loss_tokens + count


class Recorder:
    """A single-producer, single-consumer ring of rows.

    Args:
        timeline: The timeline whose phases each row copies.
        capacity: Rows the ring holds before the oldest unread ones are lost, > 0.
    """

    def __init__(self, timeline: Timeline, capacity: int = 16384) -> None:
        self.timeline = timeline
        self.counters = Counters()
        self.capacity = capacity
        self._ring = bytearray(_ROW.size * capacity)
        self._num_written = 0
        self._num_read = 0
        self.num_dropped = 0
        self.start_ns = timeline.start_ns
        self.context = UNKNOWN

    def cut(self) -> int:
        """End the current iteration now, append its row, and return the time; training thread, about 2 µs.

        The first cut of an attempt also ends start-up: the first iteration belongs to it, with its
        compilation, its allocator warm-up and its first batch.
        """
        counters = self.counters
        index = counters.iterations
        counters.iterations = index + 1
        timeline = self.timeline
        end_ns = timeline.mark()
        written = self._num_written
        _ROW.pack_into(
            self._ring,
            (written % self.capacity) * _ROW.size,
            index,
            self.start_ns,
            end_ns,
            counters.micro_batches,
            counters.optimizer_steps,
            counters.skipped_steps,
            counters.samples,
            counters.slots,
            counters.tokens,
            counters.loss_tokens,
            self.context,
            *timeline.phase_ns,
        )
        self._num_written = written + 1
        self.start_ns = end_ns
        if index == 0:
            timeline.rebase(Phase.OTHER)
        return end_ns

    def drain(self, max_rows: int) -> Iterator[Row]:
        """Yield up to ``max_rows`` unread rows, oldest first; pipeline thread only.

        Rows that were overwritten before they were read are counted in ``num_dropped``.
        """
        # One row of distance: the writer may be filling the slot that follows the newest.
        oldest = self._num_written - self.capacity + 1
        if self._num_read < oldest:
            self.num_dropped += oldest - self._num_read
            self._num_read = oldest
        stop = min(self._num_written, self._num_read + max_rows)
        while self._num_read < stop:
            values = _ROW.unpack_from(self._ring, (self._num_read % self.capacity) * _ROW.size)
            self._num_read += 1
            yield Row._make((*values[:_NUM_HEAD], values[_NUM_HEAD:]))
