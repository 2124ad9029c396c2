"""Processor clocks of the threads and processes that a subject has started.

``training.py`` lists them around the arming of a subject, and reads them around a stretch of steps.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil


def list_threads() -> set[int]:
    """Return the ids of this process's threads as the kernel numbers them."""
    return {int(entry.name) for entry in Path("/proc/self/task").iterdir()}


def list_processes() -> set[int]:
    """Return the ids of the processes below this one."""
    return {child.pid for child in psutil.Process().children(recursive=True)}


# How Linux numbers the processor clock of a thread or process, see clock_getcpuclockid(3).
def _thread_clock(thread: int) -> int:
    return (~thread << 3) | 6


def _process_clock(process: int) -> int:
    return (~process << 3) | 2


def _read_ns(clocks: Iterable[int]) -> int:
    spent_ns = 0
    for clock in clocks:
        try:
            spent_ns += time.clock_gettime_ns(clock)
        except OSError:  # it has ended
            continue
    return spent_ns


@dataclass(frozen=True)
class Tasks:
    """Threads and processes that a subject started when it was armed."""

    threads: frozenset[int] = frozenset()
    processes: frozenset[int] = frozenset()

    @property
    def is_empty(self) -> bool:
        """Return whether the subject has only the training thread."""
        return not self.threads and not self.processes

    @staticmethod
    def list() -> Tasks:
        """Return all that run now."""
        return Tasks(frozenset(list_threads()), frozenset(list_processes()))

    def __sub__(self, other: Tasks) -> Tasks:
        return Tasks(self.threads - other.threads, self.processes - other.processes)

    def read_ns(self) -> tuple[int, int]:
        """Return the processor time so far of the threads and of the processes."""
        return (
            _read_ns(_thread_clock(thread) for thread in self.threads),
            _read_ns(_process_clock(process) for process in self.processes),
        )


def read_behind_ns(own: Tasks, foreign: Iterable[Tasks]) -> tuple[int, int]:
    """Return the processor time behind the training thread, which calls this: threads, processes.

    All threads count but those of other subjects, so threads that come late count, too.

    Args:
        own: What the subject started.
        foreign: What the others started.
    """
    threads_ns = time.process_time_ns() - time.thread_time_ns()
    return threads_ns - sum(tasks.read_ns()[0] for tasks in foreign), own.read_ns()[1]
