"""Facts about this process that the operating system knows: when it started, and whether a person is typing into it."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import psutil

from costlens.core.clock import NS_PER_S

__all__ = ["is_interactive", "process_age_ns"]


def process_age_ns() -> int | None:
    """Return how long ago this process started, in nanoseconds, or None where the system does not tell.

    On Linux both readings come from the kernel's boot clock (resolution 10 ms), so a step of the
    wall clock cannot distort it; elsewhere psutil's creation time is compared with the wall clock.
    """
    try:
        # The fields after the command's closing parenthesis; start time is field 22 of proc(5), in
        # clock ticks since boot.
        fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        started_ns = int(fields[19]) * NS_PER_S // os.sysconf("SC_CLK_TCK")
        return max(0, time.clock_gettime_ns(time.CLOCK_BOOTTIME) - started_ns)
    except (OSError, ValueError, IndexError, AttributeError):
        pass
    try:
        return max(0, int((time.time() - psutil.Process().create_time()) * NS_PER_S))
    except psutil.Error:
        return None


def is_interactive() -> bool:
    """Return whether this is a notebook or a prompt, where the process is far older than the run."""
    if hasattr(sys, "ps1") or sys.flags.interactive:
        return True
    ipython = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None
