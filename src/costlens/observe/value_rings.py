"""Preallocated slots that values are copied into: no user's tensor is held, no device waited for.

``device_values`` labels and routes; :class:`HostRing` takes tensors of the CPU and
:class:`DeviceBank` those of one device stream.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import torch

from costlens.core.clock import NS_PER_S, Clock
from costlens.observe.device import Device, Event

__all__ = ["BANK_SIZE", "DeviceBank", "HostRing", "Label"]

BANK_SIZE = 64
"""Values that one transfer from a device brings over."""

_NUM_HOSTS = 4
_FLUSH_AFTER_NS = NS_PER_S

# Everything travels as float64: counts are exact up to 2**53, which no iteration reaches.
_DTYPE = torch.float64

Label = tuple[bool, str, int, int]
"""Whether it is a count, its name, its iteration's number, the monotonic time it came at."""


def copy_in(slot: torch.Tensor, value: torch.Tensor) -> None:
    """Copy a tensor of one element into a slot; autograd does not follow.

    Raises:
        RuntimeError: If the value has not exactly one element.
    """
    plain = torch.Tensor.detach(value)
    slot.copy_(plain if plain.dim() < 2 else plain.reshape(-1))


class HostRing:
    """Slots in host memory for tensors of the CPU; one writing and one reading thread.

    The reader sees a Python array, so reading takes no torch call at all.

    Args:
        capacity: Values between two readings, > 0.
    """

    def __init__(self, capacity: int = 1024) -> None:
        self._cells = array("d", bytes(8 * capacity))
        # Made inside the user's inference mode, the slots could not be written outside it.
        with torch.inference_mode(mode=False):
            whole = torch.frombuffer(self._cells, dtype=_DTYPE)
            self._slots = [whole[index : index + 1] for index in range(capacity)]
        self._capacity = capacity
        self._labels: deque[Label] = deque()
        self._num_written = 0
        self._num_read = 0

    def put(self, value: torch.Tensor, label: Label) -> bool:
        """Copy a value in, or return False when the ring is full; training thread, about 2 µs.

        Raises:
            RuntimeError: If the value has not exactly one element.
        """
        written = self._num_written
        if written - self._num_read >= self._capacity:
            return False
        copy_in(self._slots[written % self._capacity], value)
        self._num_written = written + 1
        # Last, because the label is what tells the reader that the slot is filled.
        self._labels.append(label)
        return True

    def take(self) -> Iterator[tuple[Label, float]]:
        """Yield what has arrived, oldest first; pipeline thread."""
        while self._labels:
            label = self._labels.popleft()
            value = self._cells[self._num_read % self._capacity]
            self._num_read += 1
            yield label, value


class _Flight(NamedTuple):
    event: Event
    host: torch.Tensor
    labels: list[Label]


class DeviceBank:
    """Slots on a device; 64 values, or a second's, travel to the host together.

    The copy into a slot is enqueued behind the work that computes the value, so nothing waits, and
    the value may be overwritten afterwards (CUDA graphs do that at every replay).

    Args:
        device: The stream that the values are computed on.
        ring: A float64 tensor of ``BANK_SIZE`` on the device.
        hosts: Tensors of the same shape in pinned memory; transfers that may be under way together.
        clock: Monotonic nanoseconds.
    """

    def __init__(
        self, device: Device, ring: torch.Tensor, hosts: list[torch.Tensor], clock: Clock
    ) -> None:
        self._device = device
        self._ring = ring
        self._slots = [ring[index : index + 1] for index in range(len(ring))]
        self._free: deque[torch.Tensor] = deque(hosts)
        self._clock = clock
        self._labels: list[Label] = []
        self._flights: deque[_Flight] = deque()
        self.num_dropped = 0

    @classmethod
    def on_cuda(cls, stream: torch.cuda.Stream, clock: Clock) -> DeviceBank:
        """Return a bank on a CUDA stream; allocates once, in start-up as a rule."""
        from costlens.observe.device_cuda import CudaDevice

        with torch.inference_mode(mode=False):
            ring = torch.zeros(BANK_SIZE, dtype=_DTYPE, device=stream.device)
            hosts = [
                torch.zeros(BANK_SIZE, dtype=_DTYPE, pin_memory=True) for _ in range(_NUM_HOSTS)
            ]
            return cls(CudaDevice(stream), ring, hosts, clock)

    def put(self, value: torch.Tensor, label: Label) -> None:
        """Enqueue a copy of a value; training thread, about 6 µs, and one transfer in 64.

        Raises:
            RuntimeError: If the value has not exactly one element.
        """
        copy_in(self._slots[len(self._labels)], value)
        self._labels.append(label)
        oldest_ns = self._labels[0][3]
        if len(self._labels) == len(self._slots) or label[3] - oldest_ns > _FLUSH_AFTER_NS:
            self.flush()

    def flush(self) -> None:
        """Send what has gathered; training thread, or the pipeline thread once training has ended.

        When every transfer is still under way, the device is far behind: the values are dropped
        and counted.
        """
        labels, self._labels = self._labels, []
        if not labels:
            return
        if not self._free:
            self.num_dropped += len(labels)
            return
        host = self._free.popleft()
        self._device.copy_out(host, self._ring)
        self._flights.append(_Flight(self._device.record_event(), host, labels))

    def take(self) -> Iterator[tuple[Label, float]]:
        """Yield what the device has delivered, oldest first, without waiting; pipeline thread."""
        while self._flights and self._flights[0].event.query():
            flight = self._flights.popleft()
            values = flight.host.tolist()
            self._device.recycle(flight.event)
            self._free.append(flight.host)
            yield from zip(flight.labels, values)  # noqa: B905 - the last slots may be empty

    @property
    def num_waiting(self) -> int:
        """Return how many transfers are under way."""
        return len(self._flights)
