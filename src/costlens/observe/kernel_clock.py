"""Whether the kernel's clock is kept in step with others, as ``adjtimex`` tells."""

from __future__ import annotations

import ctypes
import sys

__all__ = ["ClockState", "read_clock_state"]

_TIME_ERROR = 5
_NUM_LONGS = 32  # the structure has 26 words of a long or less


class ClockState:
    """What the kernel knows of its clock.

    Args:
        is_synchronized: Whether somebody (NTP, PTP) keeps it in step.
        max_error_s: Seconds that it is off by at most, as the kernel reckons.
    """

    __slots__ = ("is_synchronized", "max_error_s")

    def __init__(self, *, is_synchronized: bool, max_error_s: float) -> None:
        self.is_synchronized = is_synchronized
        self.max_error_s = max_error_s


class _Timex(ctypes.Structure):
    """The beginning of ``struct timex`` of <sys/timex.h>."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("rest", ctypes.c_long * _NUM_LONGS),
    )


def read_clock_state() -> ClockState | None:
    """Return the state of this machine's clock, or None where the system does not tell."""
    if sys.platform != "linux":
        return None
    try:
        adjtimex = ctypes.CDLL(None).adjtimex
    except (OSError, AttributeError):
        return None
    asked = _Timex(modes=0)  # 0 changes nothing
    state = adjtimex(ctypes.byref(asked))
    if state < 0:
        return None
    return ClockState(
        is_synchronized=state != _TIME_ERROR, max_error_s=max(0, int(asked.maxerror)) / 1e6
    )
