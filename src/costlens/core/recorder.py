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

__all__ = ["MAX_COUNT", "UNKNOWN", "Counters", "Recorder", "Row"]

UNKNOWN = -1
"""Marks a counter nobody has reported: absent, not zero (CONTRIBUTING.md, law 3)."""

_NUM_HEAD = 12
_ROW = struct.Struct(f"<{_NUM_HEAD + NUM_PHASES}q")
_ROW_BYTES = _ROW.size
_pack_row = _ROW.pack_into
_STARTUP = int(Phase.STARTUP)
_MIN_CAPACITY = 2


class Row(NamedTuple):
    """One finished iteration; its counts and phases are cumulative since the attempt began.

    Args:
        number: Number of the iteration in this attempt, from 0.
        start_ns: Monotonic start: the fetch of its batch, or the end of the iteration before.
        end_ns: Monotonic end.
        micro_batches: Training-step calls.
        optimizer_steps: Optimizer updates that changed parameters; ``UNKNOWN`` while no optimizer
            is watched, like the next.
        skipped_steps: Optimizer updates that a gradient scaler skipped.
        samples: Samples; ``UNKNOWN`` while never reported, like the next three.
        slots: Token positions, padding included.
        tokens: Non-padding tokens.
        loss_tokens: Tokens the loss was computed on.
        context: A small number the doorway gave this iteration (epoch), or ``UNKNOWN``.
        is_startup: 1 where start-up lasted until the end of this iteration, as the first one's
            does, else 0.
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
    is_startup: int
    phase_ns: tuple[int, ...]


MAX_COUNT = 2**40
"""Most that one iteration may add to a counter: what is above is no count, and rows are int64."""


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
        self.optimizer_steps = UNKNOWN
        self.skipped_steps = UNKNOWN
        self.samples = UNKNOWN
        self.slots = UNKNOWN
        self.tokens = UNKNOWN
        self.loss_tokens = UNKNOWN
        self.validation_batches = 0
        self.test_batches = 0

    def watch_steps(self) -> None:
        """Say that optimizer steps are seen from now on: none so far is 0, not unknown."""
        self.optimizer_steps = max(0, self.optimizer_steps)
        self.skipped_steps = max(0, self.skipped_steps)

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
        capacity: Rows the ring holds before the oldest unread ones are lost, > 1.

    Attributes:
        counters: Counts of the attempt.
        num_dropped: Rows that were overwritten before they were read.
        start_ns: Monotonic start of the iteration under way; a doorway may set it to the fetch.
        context: What the next row carries as its ``context``.
    """

    def __init__(self, timeline: Timeline, capacity: int = 16384) -> None:
        self.timeline = timeline
        self.counters = Counters()
        self.capacity = self._full_capacity = capacity
        self._ring = bytearray(_ROW_BYTES * capacity)
        self._first = b""
        self._num_written = 0
        self._num_read = 0
        self.first_cut_ns: int | None = None
        self.num_dropped = 0
        self.start_ns = timeline.start_ns
        self.context = UNKNOWN

    def cut(self) -> int:
        """End the iteration now, append its row and return the time; training thread, about 1 µs.

        A cut also ends start-up: the first iteration belongs to it, with its compilation, its
        allocator warm-up and its first batch.
        """
        counters = self.counters
        index = counters.iterations
        counters.iterations = index + 1
        timeline = self.timeline
        # What `timeline.mark` does, without its call.
        end_ns = timeline.clock()
        timeline.phase_ns[timeline.phase] += end_ns - timeline.since_ns
        timeline.since_ns = end_ns
        is_startup = timeline.base == _STARTUP or index == 0
        written = self._num_written
        _pack_row(
            self._ring,
            (written % self.capacity) * _ROW_BYTES,
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
            is_startup,
            *timeline.phase_ns,
        )
        if written == 0:
            # Rates are counted from the first row, so it must outlive any delay of the reader.
            self._first = bytes(self._ring[:_ROW_BYTES])
            self.first_cut_ns = end_ns
        self._num_written = written + 1
        self.start_ns = end_ns
        if is_startup and timeline.base == _STARTUP:
            timeline.rebase(Phase.OTHER)
        return end_ns

    def cut_to(self, depth: int) -> None:
        """End the iteration and leave phases until at most ``depth`` are open, at one moment."""
        self.cut()
        timeline = self.timeline
        stack = timeline.levels
        if len(stack) - 2 == depth:  # the usual case, without a call
            stack.pop()
            timeline.phase = stack[-1][1]
        else:
            timeline.drop(depth)

    def cut_into(self, phase: int) -> None:
        """End the iteration and put a phase in the place of the one opened last, at one moment."""
        self.cut()
        self.timeline.replace(phase)

    def drain(self, max_rows: int) -> Iterator[Row]:
        """Yield up to ``max_rows`` unread rows, oldest first; pipeline thread only.

        Rows that were overwritten before they were read are counted in ``num_dropped``; the first
        row of the attempt never is.
        """
        for _ in range(max_rows):
            if self._num_read == self._num_written:
                return
            values = self._read_next()
            yield Row._make((*values[:_NUM_HEAD], values[_NUM_HEAD:]))

    def rest(self) -> None:
        """Give the ring's memory back (4 MB) once all rows are read and no pipeline runs.

        Runs refer to themselves in circles, so a process of many runs would keep many rings until
        the next full collection.
        """
        # The capacity first: a thread that cuts a late row in between stays inside either ring.
        self.capacity = _MIN_CAPACITY
        self._ring = bytearray(_ROW_BYTES * _MIN_CAPACITY)

    def wake(self) -> None:
        """Get ready for rows again, before a pipeline runs; late ones since ``rest`` are lost."""
        if self.capacity == self._full_capacity:
            return
        self._ring = bytearray(_ROW_BYTES * self._full_capacity)
        self.capacity = self._full_capacity
        if self._num_read:
            self.num_dropped += self._num_written - self._num_read
            self._num_read = self._num_written

    def _read_next(self) -> tuple[int, ...]:
        if self._num_read == 0:
            self._num_read = 1
            return _ROW.unpack(self._first)
        while True:
            number = self._num_read
            values = _ROW.unpack_from(self._ring, (number % self.capacity) * _ROW_BYTES)
            # The writer does not wait. What was unpacked is the wanted row, and whole, only if the
            # writer has not come round to its slot even now; one row of distance, for it may be in
            # the middle of the row that it has not counted yet.
            oldest = self._num_written - self.capacity + 1
            if number >= oldest:
                self._num_read = number + 1
                return values
            self.num_dropped += oldest - number
            self._num_read = oldest
