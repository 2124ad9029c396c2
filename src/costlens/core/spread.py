"""Spreads the ranks of a job over a window, so that they do not all export at the same moment.

``assembly.py`` asks once, when the pipeline starts; every later window keeps the distance.
"""

from __future__ import annotations

import math
from hashlib import blake2b

__all__ = ["first_window_ns"]

# Steps of the golden ratio fill a circle evenly however many there are, which random ones do not.
_GOLDEN = (math.sqrt(5) - 1) / 2


def first_window_ns(run_id: str, rank: int, world_size: int, window_ns: int) -> int:
    """Return the length of a rank's first window, at most that of the others.

    The same whenever it is asked; another for each rank, and for the same rank of another run. A
    job of one rank has nobody to keep out of the way of.

    Args:
        run_id: The run.
        rank: The rank, from 0.
        world_size: Ranks of the job.
        window_ns: Length of a window in nanoseconds, > 0.
    """
    if world_size == 1:
        return window_ns
    digest = blake2b(run_id.encode(), digest_size=6).digest()
    turn = (int.from_bytes(digest, "big") / 2**48 + rank * _GOLDEN) % 1.0
    return max(1, round(window_ns * (1 - turn)))
