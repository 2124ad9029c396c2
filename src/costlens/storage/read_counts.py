"""Counts of reads that all processes of a rank add to, without a message between them.

Shared memory holds a slot for each thread that reads, wherever it runs: loader workers inherit the
memory when they are forked, and open it by the rank's process id when they are spawned. Only its
own thread writes a slot; the pipeline thread of the rank adds them up. Some are the rank's from the
start, so that its threads never wait for one; workers take theirs one after the other.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
import threading
import weakref
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from costlens.core.clock import NS_PER_S
from costlens.core.host_records import READ_BOUNDS_S, ReadsPart

__all__ = ["ReadCounts", "Tally"]

_BOUNDS_NS = [round(bound * NS_PER_S) for bound in READ_BOUNDS_S]

# A slot: the owner's process id, then its numbers, each of eight bytes that are written and read
# whole.
_PID, _READS, _BYTES, _ERRORS, _OPENS, _OPEN_NS, _READ_NS, _MAX_NS, _BUCKETS = range(9)
_SLOT = _BUCKETS + len(READ_BOUNDS_S) + 1
# Before them a token, the number of threads that found no slot, and room.
_TOKEN_BYTES = 16
_LOST = 2
_START = 8
_NUM_SLOTS = 512
_NUM_OWN = 64
_NUM_WORDS = _START + _NUM_SLOTS * _SLOT
_SIZE = _NUM_WORDS * 8
_PROC = "/proc"


class Tally:
    """What one thread has read, in the slot it owns.

    Args:
        process: What it shares with the other threads of its process.
        slot: Its slot, or None where there was none left.
        numbers: The memory of the slot.
    """

    __slots__ = ("_numbers", "_process", "_slot", "pid")

    def __init__(self, process: _Process, slot: int | None, numbers: memoryview[int]) -> None:
        self.pid = process.pid
        self._process = process
        self._slot = slot
        self._numbers = numbers

    def add_read(self, num_bytes: int, took_ns: int) -> None:
        """Count a read; the reading thread, about 1 µs.

        Args:
            num_bytes: What the caller got.
            took_ns: How long it took.
        """
        numbers = self._numbers
        numbers[_READS] += 1
        numbers[_BYTES] += num_bytes
        numbers[_READ_NS] += took_ns
        if took_ns > numbers[_MAX_NS]:  # noqa: PLR1730 - max() would cost a call and a write
            numbers[_MAX_NS] = took_ns
        numbers[_BUCKETS + bisect_left(_BOUNDS_NS, took_ns)] += 1

    def add_open(self, took_ns: int) -> None:
        """Count a file that was opened."""
        self._numbers[_OPENS] += 1
        self._numbers[_OPEN_NS] += took_ns

    def add_error(self) -> None:
        """Count a read or an open that raised."""
        self._numbers[_ERRORS] += 1

    def __del__(self) -> None:
        # Its thread has ended: another of this process goes on where it stopped.
        if self._slot is not None and self.pid == os.getpid():
            self._process.free.append(self._slot)


class _Process:
    """What the threads of one process share."""

    __slots__ = ("free", "is_full", "lock", "pid")

    def __init__(self, own: Iterable[int] = ()) -> None:
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.free = deque(own)
        self.is_full = bool(self.free)  # the rank takes no more than its own


class ReadCounts:
    """The counts of a rank; pickles into its loader workers, where it counts into the same memory.

    A copy that cannot reach that memory (another machine, or the rank is gone) counts nothing.
    """

    def __init__(self) -> None:
        token = secrets.token_bytes(_TOKEN_BYTES)
        self._open(_make_memory(), token)
        self._memory[:_TOKEN_BYTES] = token
        self._process = _Process(range(_NUM_OWN))
        for slot in range(_NUM_OWN):
            self._words[_START + slot * _SLOT + _PID] = self._process.pid

    def _open(self, file: int | None, token: bytes) -> None:
        self._file = file
        self._token = token
        self._memory = mmap.mmap(-1 if file is None else file, _SIZE)
        self._words: memoryview[int] = memoryview(self._memory).cast("Q")
        self._local = threading.local()
        self._process = _Process()
        if file is not None:
            weakref.finalize(self, os.close, file)
        _of_process[token] = self

    def __reduce__(self) -> tuple[Any, ...]:
        if self._file is None:
            return (_nothing, ())
        return (_attach, (os.getpid(), self._file, self._token))

    def __copy__(self) -> ReadCounts:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> ReadCounts:
        return self

    def tally(self) -> Tally:
        """Return the tally of this thread; about 0.2 µs, but for the first time."""
        try:
            tally: Tally = self._local.tally
        except AttributeError:
            return self._make_tally()
        return tally if tally.pid == os.getpid() else self._make_tally()

    def _make_tally(self) -> Tally:
        if self._process.pid != os.getpid():  # a fork, whose only thread this is
            self._process = _Process()
        slot = self._claim(self._process)
        if slot is None:
            self._words[_LOST] += 1
            numbers: memoryview[int] = memoryview(bytearray(_SLOT * 8)).cast("Q")
        else:
            numbers = self._words[_START + slot * _SLOT : _START + (slot + 1) * _SLOT]
        tally = self._local.tally = Tally(self._process, slot, numbers)
        return tally

    def _claim(self, process: _Process) -> int | None:
        """Return a slot for a thread of this process, or None where none is left.

        Waits for other workers that are taking theirs, but never in the rank itself. A slot whose
        process has ended is taken over with what it has counted.
        """
        with suppress(IndexError):
            return process.free.popleft()
        if process.is_full:
            return None
        with process.lock, self._locked():
            for slot in range(_NUM_OWN, _NUM_SLOTS):
                at = _START + slot * _SLOT + _PID
                if self._words[at] == 0 or not _is_alive(self._words[at]):
                    self._words[at] = process.pid
                    return slot
            process.is_full = True
            return None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # Locks of this kind belong to a process; its own threads are kept apart by its own lock.
        if self._file is None:
            yield
            return
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)

    def read(self) -> ReadsPart:
        """Return the sums over all slots; pipeline thread, about 1 µs a slot that was ever used."""
        sums = [0] * _SLOT
        longest_ns = 0
        for begin in range(_START, _NUM_WORDS, _SLOT):
            numbers = self._words[begin : begin + _SLOT].tolist()
            if numbers[_PID] == 0:  # slots are taken in order
                break
            if numbers[_READS] or numbers[_OPENS] or numbers[_ERRORS]:
                longest_ns = max(longest_ns, numbers[_MAX_NS])
                sums = [a + b for a, b in zip(sums, numbers, strict=True)]
        return ReadsPart(
            num_reads=sums[_READS],
            num_bytes=sums[_BYTES],
            num_errors=sums[_ERRORS],
            num_opens=sums[_OPENS],
            open_s=sums[_OPEN_NS] / NS_PER_S,
            read_s=sums[_READ_NS] / NS_PER_S,
            max_s=longest_ns / NS_PER_S,
            bounds_s=list(READ_BOUNDS_S),
            buckets=sums[_BUCKETS:],
            num_uncounted=self._words[_LOST],
        )


# One object a process for each memory, so that its threads share one lock.
_of_process: weakref.WeakValueDictionary[bytes, ReadCounts] = weakref.WeakValueDictionary()


def _make_memory() -> int | None:
    """Return a file that only processes which know its number can open, and that needs no name.

    None where the system has no such files: then only forked workers share the memory.
    """
    if not hasattr(os, "memfd_create"):
        return None
    file = os.memfd_create("costlens-reads", os.MFD_CLOEXEC)
    os.ftruncate(file, _SIZE)
    return file


def _attach(pid: int, number: int, token: bytes) -> ReadCounts | None:
    """Return the counts of the rank that pickled them, None where its memory cannot be reached."""
    known = _of_process.get(token)
    if known is not None:  # in the rank itself, in its forks, and in a copy of a copy
        return known
    try:
        file = os.open(f"{_PROC}/{pid}/fd/{number}", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    # The number may stand for another file by now.
    if os.fstat(file).st_size != _SIZE or os.pread(file, len(token), 0) != token:
        os.close(file)
        return None
    counts = ReadCounts.__new__(ReadCounts)
    counts._open(file, token)  # noqa: SLF001 - its own kind
    return counts


def _nothing() -> None:
    return None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
