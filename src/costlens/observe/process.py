"""Facts about processes: when this one began, who types into it, and whether another still lives.

assembly.py asks the first two when a run opens: paid time begins at the process start where that is
known. Readers of a run folder ask the last.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from pathlib import Path

import psutil

from costlens.core.clock import NS_PER_S

__all__ = [
    "has_first_pid_space",
    "is_alive",
    "is_interactive",
    "pid_space",
    "process_age_ns",
    "start_ticks",
]

_STAT = Path("/proc/self/stat")
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE = Path("/proc/self/ns/pid")
_FIRST_NAMESPACE = Path("pid:[4026531836]")  # PROC_PID_INIT_INO of the kernel's proc_ns.h

# Fields of proc(5), counted from the one after the command's closing parenthesis.
_STATE, _START = 0, 19
_DEAD_STATES = frozenset("ZX")


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
    ticks = start_ticks()
    return None if ticks is None else ticks * NS_PER_S // os.sysconf("SC_CLK_TCK")


def start_ticks() -> int | None:
    """Return the start of this process in clock ticks since the boot, None where it is not told."""
    try:
        return int(_read_stat(_STAT)[_START])
    except (OSError, ValueError, IndexError):
        return None


def pid_space() -> str | None:
    """Return a hash of this boot and pid namespace: only there a pid means the same process.

    None where the system does not tell. Host names do not do: containers may share one.
    """
    try:
        boot = _BOOT.read_text(encoding="ascii").strip()
        text = f"{boot}/{_NAMESPACE.readlink()}"
    except (OSError, ValueError):
        return None
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def is_alive(pid: int, ticks: int) -> bool:
    """Return whether a process of this pid namespace lives, or might.

    A process of that number which started at another time is another one, and one that only its
    parent has not noticed the end of is dead.

    Args:
        pid: Its number, > 0.
        ticks: Its start in clock ticks since the boot.
    """
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):  # no process of this system has such a number
        return False
    except PermissionError:
        pass  # it exists, and is another user's
    try:
        fields = _read_stat(Path(f"/proc/{pid}/stat"))
        return int(fields[_START]) == ticks and fields[_STATE] not in _DEAD_STATES
    except (OSError, ValueError, IndexError):
        return True  # hidden from this user


def _read_stat(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def is_interactive() -> bool:
    """Return whether this is a notebook or a prompt, where the process is older than the work."""
    if hasattr(sys, "ps1") or sys.flags.interactive:
        return True
    ask = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return ask is not None and ask() is not None


def has_first_pid_space() -> bool:
    """Return whether process ids here are the kernel's own, as drivers know them."""
    try:
        return _NAMESPACE.readlink() == _FIRST_NAMESPACE
    except OSError:
        return False
