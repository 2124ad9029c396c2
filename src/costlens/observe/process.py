"""Facts about this process: when it started, and whether a person is typing into it.

run.py asks both once, when a run opens: paid time begins at the process start where that is known.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import psutil

from costlens.core.clock import NS_PER_S

__all__ = ["is_interactive", "process_age_ns"]

_STAT = Path("/proc/self/stat")


def process_age_ns() -> int | None:
    """Return how long ago this process started, in ns, or None where the system does not tell.

    On Linux both readings come from the kernel's boot clock (resolution 10 ms), so a step of the
    wall clock cannot distort it; elsewhere psutil's creation time is compared with the wall clock.
    """
    started_ns = _started_since_boot_ns()
    if started_ns is None:
        try:
            return max(0, int((time.time() - psutil.Process().create_time()) * NS_PER_S))
        except psutil.Error:
            return None
    # Sandboxes without a real /proc report 0: that is the machine's age, not the process's.
    if started_ns == 0:
        return None
    return max(0, time.clock_gettime_ns(time.CLOCK_BOOTTIME) - started_ns)


def _started_since_boot_ns() -> int | None:
    try:
        # The fields after the command's closing parenthesis; start time is field 22 of proc(5), in
        # clock ticks since boot.
        fields = _STAT.read_text(encoding="utf-8").rpartition(")")[2].split()
        return int(fields[19]) * NS_PER_S // os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def is_interactive() -> bool:
    """Return whether this is a notebook or a prompt, where the process is older than the work."""
    if hasattr(sys, "ps1") or sys.flags.interactive:
        return True
    ask = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return ask is not None and ask() is not None
