"""Counts and quality metrics on their way from the training loop to the pipeline.

Scopes and ``Run.log`` put them in on the training thread, ``lookout.py`` takes them out on the
pipeline thread. A tensor is copied into a preallocated slot and read later: the training thread
waits for no device, and no tensor of the user is kept.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Protocol, SupportsFloat, cast

from costlens.core.clock import NS_PER_S, Clock
from costlens.core.guard import faults
from costlens.core.recorder import MAX_COUNT

if TYPE_CHECKING:
    import torch

    from costlens.observe.value_rings import DeviceBank, HostRing, Label

__all__ = ["Count", "DeviceValues", "GapSource", "Metric"]

_CAPACITY = 32768
_MAX_BANKS = 8
_SETTLE_PAUSE_NS = 1_000_000


class Count(NamedTuple):
    """What one iteration added to a counter: its name, the iteration's number, the amount >= 0."""

    name: str
    number: int
    value: int


class Metric(NamedTuple):
    """One value of a quality metric, its iteration and the monotonic time (ns) it came at."""

    name: str
    value: float
    number: int
    mono_ns: int


class GapSource(Protocol):
    """Knows how long the device waited before an iteration; see ``device_events``."""

    def take_gaps(self) -> list[tuple[int, int]]:
        """Return (iteration number, gap in ns) pairs known since the last call; pipeline thread."""

    def has_pending(self) -> bool:
        """Return whether the device has not passed every event yet."""


class DeviceValues:
    """Takes numbers and one-element tensors on the training thread, gives back numbers elsewhere.

    Tensors of the CPU and of CUDA are understood. What cannot be taken (queues full, a tensor whose
    value needs a collective or a wait) is dropped and counted. torch is never imported here.

    Args:
        clock: Monotonic nanoseconds.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Each value lies beside its label, in one flat tuple: the garbage collector forgets those.
        self._ready: deque[tuple[bool, str, int, int, float]] = deque()
        self._counts: list[Count] = []
        self._metrics: list[Metric] = []
        self._ring: HostRing | None = None
        self._banks: dict[tuple[int, int], DeviceBank] = {}
        self.gaps: GapSource | None = None
        self._num_refused = 0

    @property
    def num_dropped(self) -> int:
        """Return how many values were given up."""
        in_gaps = getattr(self.gaps, "num_dropped", 0)
        return (
            in_gaps
            + self._num_refused
            + sum(bank.num_dropped for bank in list(self._banks.values()))
        )

    # Training thread.

    def add_count(self, name: str, value: object, number: int) -> None:
        """Add ``value`` to the counter ``name`` of iteration ``number``; training thread.

        Costs under 1 µs for a number and about 4 µs for a tensor; never waits, raises nothing.

        Args:
            name: A counter that may come late: ``tokens``, ``slots`` or ``loss_tokens``.
            value: A number or a tensor of one element, >= 0.
            number: Number of the iteration in the attempt, from 0.
        """
        self._add((True, name, number, self._clock()), value)

    def add_metric(self, name: str, value: object, number: int) -> None:
        """Take one value of a quality metric of iteration ``number``; costs as :meth:`add_count`.

        Args:
            name: The metric.
            value: A number or a tensor of one element; NaN and infinities pass.
            number: Number of the iteration in the attempt, from 0.
        """
        if type(value) is float and len(self._ready) < _CAPACITY:  # the loss of every iteration
            self._ready.append((False, name, number, self._clock(), value))
        else:
            self._add((False, name, number, self._clock()), value)

    def _add(self, label: Label, value: object) -> None:
        kind = type(value)
        if kind is float or (kind is int and -MAX_COUNT <= cast("int", value) <= MAX_COUNT):
            self._enqueue(label, cast("float", value))
            return
        if kind is int:
            self.refuse()
            return
        # A wrong argument (a string, a batch of losses) is to be reported, not to stop training.
        with faults.contain("values.add"):
            torch = sys.modules.get("torch")
            if torch is not None and isinstance(value, torch.Tensor):
                # A subclass (a metric wrapper, a counting double) must not notice that it is read.
                with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001 - has no public name
                    self._add_tensor(label, value)
            else:
                number = cast("SupportsFloat", value)
                self._enqueue(label, float(number))

    def refuse(self) -> None:
        """Count a value that cannot be one; training thread."""
        self._num_refused += 1

    def _enqueue(self, label: Label, value: float) -> None:
        if len(self._ready) < _CAPACITY:
            self._ready.append((*label, value))
        else:
            self._num_refused += 1

    def _add_tensor(self, label: Label, value: torch.Tensor) -> None:
        # Tensors made of other tensors (DTensor) may need a collective to know their number.
        if hasattr(type(value), "__tensor_flatten__"):
            self._num_refused += 1
        elif value.is_cpu:
            if self._ring is None:
                from costlens.observe.value_rings import HostRing

                self._ring = HostRing()
            if not self._ring.put(value, label):
                # More in a second than the ring holds; the CPU can be read without waiting for it.
                self._enqueue(label, value.item())
        elif value.is_cuda and (bank := self._bank(value)) is not None:
            bank.put(value, label)
        else:
            self._num_refused += 1

    def _bank(self, value: torch.Tensor) -> DeviceBank | None:
        torch = sys.modules["torch"]
        # What is enqueued while a graph is captured would run again at every replay.
        if torch.cuda.is_current_stream_capturing():
            return None
        stream = torch.cuda.current_stream(value.device)
        key = (stream.device_index, stream.cuda_stream)
        bank = self._banks.get(key)
        if bank is None and len(self._banks) < _MAX_BANKS:
            from costlens.observe.value_rings import DeviceBank

            bank = self._banks[key] = DeviceBank.on_cuda(stream, self._clock)
        return bank

    # Pipeline thread.

    def take_counts(self) -> list[Count]:
        """Return the counts that are known since the last call."""
        self._collect()
        taken, self._counts = self._counts, []
        return taken

    def take_metrics(self) -> list[Metric]:
        """Return the quality values that are known since the last call, NaN among them."""
        self._collect()
        taken, self._metrics = self._metrics, []
        taken.sort(key=lambda metric: metric.number)  # the two ways in may pass one another
        return taken

    def take_gaps(self) -> list[tuple[int, int]]:
        """Return (iteration number, device gap in ns) pairs known since the last call."""
        return [] if self.gaps is None else self.gaps.take_gaps()

    def settle(self, deadline_ns: int) -> None:
        """Fetch what is still on a device, waiting no longer than the monotonic ``deadline_ns``.

        Only at the end of an attempt, when the training thread enqueues nothing any more.
        """
        for bank in self._banks.values():
            bank.flush()
        # Counted as well as timed: a clock that stands still must not hold the exit up.
        num_pauses = (deadline_ns - self._clock()) // _SETTLE_PAUSE_NS
        for _ in range(num_pauses):
            if not self._is_waiting() or self._clock() >= deadline_ns:
                break
            time.sleep(_SETTLE_PAUSE_NS / NS_PER_S)
        self._collect()

    def _is_waiting(self) -> bool:
        self._collect()
        return any(bank.num_waiting for bank in self._banks.values()) or (
            self.gaps is not None and self.gaps.has_pending()
        )

    def _collect(self) -> None:
        while self._ready:
            is_count, name, number, mono_ns, value = self._ready.popleft()
            self._sort_in((is_count, name, number, mono_ns), value)
        rings = [self._ring, *self._banks.values()]
        for ring in rings:
            for label, value in ring.take() if ring is not None else ():
                self._sort_in(label, value)

    def _sort_in(self, label: Label, value: float) -> None:
        is_count, name, number, mono_ns = label
        if not is_count:
            self._metrics.append(Metric(name, float(value), number, mono_ns))
        elif 0 <= value <= MAX_COUNT:
            self._counts.append(Count(name, number, int(value)))
        else:
            # Negative or NaN: no count at all, and adding it would spoil the total for good.
            self._num_refused += 1
